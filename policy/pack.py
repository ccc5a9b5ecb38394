"""Our rules in Pulumi's words: each a policy of a resource or of the whole stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import json_format
from grpc import StatusCode
from pulumi.runtime.proto import AnalyzerServicer, analyzer_pb2, analyzer_pb2_grpc
from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyConfigSchema,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from seen import resource_of, spending

from gpuclusters.policy.rule import Rule, Scope, Stack
from gpuclusters.policy.rules import RULES
from gpuclusters.policy.settings import ALL, LEVEL, SettingsError, configured

NAME = "gpu-clusters"
_OURS = [rule for rule in RULES if rule.scope is not Scope.CHANGE]
_SOURCE = "the policy configuration"


def serve() -> None:
    """Answer the engine until it ends us."""
    _refuse_wrong_settings()
    PolicyPack(
        name=NAME,
        display_name="GPU clusters",
        policies=[_policy(rule) for rule in _OURS],
    )


def _policy(rule: Rule) -> Policy:
    told: dict[str, Any] = {
        "name": rule.id,
        "description": f"{rule.title} ({rule.page})",
        "enforcement_level": EnforcementLevel(rule.severity.word),
        "config_schema": _schema(rule),
        "remediation_steps": rule.page,
    }
    if rule.scope is Scope.RESOURCE:
        return ResourceValidationPolicy(validate=_one(rule), **told)
    return StackValidationPolicy(validate=_all(rule), **told)


def _one(rule: Rule) -> Callable[[ResourceValidationArgs, ReportViolation], None]:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        stack = Stack([resource_of(args)])
        for violation in _as_set(rule, args.get_config()).look(stack):
            report(violation.says, args.urn)

    return validate


def _all(rule: Rule) -> Callable[[StackValidationArgs, ReportViolation], None]:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        set_ = _as_set(rule, args.get_config())
        resources = [resource_of(resource) for resource in args.resources]
        for violation in set_.look(Stack(resources, spending(resources, set_))):
            report(violation.says, violation.resource.urn)

    return validate


def _as_set(rule: Rule, parameters: Mapping[str, Any]) -> Rule:
    (made,) = configured([rule], {rule.id: dict(parameters)}, _SOURCE)
    return made


def _schema(rule: Rule) -> PolicyConfigSchema | None:
    properties = type(rule.parameters).model_json_schema(by_alias=True).get("properties", {})
    return PolicyConfigSchema(properties) if properties else None


def _refuse_wrong_settings() -> None:
    """Have what the engine configures looked through before it counts.

    Pulumi checks parameters against a schema that lets unknown ones pass, and does not look at names of
    policies at all. The SDK has no place for a check of one's own; the function that it registers its
    servicer with is the nearest to one.
    """
    register = analyzer_pb2_grpc.add_AnalyzerServicer_to_server

    def checked(servicer: AnalyzerServicer, server: Any) -> None:
        configure = servicer.Configure

        def refuse_or_configure(request: Any, context: Any) -> Any:
            try:
                configured(RULES, _document(request.policyConfig), _SOURCE)
            except SettingsError as error:
                context.abort(StatusCode.INVALID_ARGUMENT, str(error))
            return configure(request, context)

        servicer.Configure = refuse_or_configure  # type: ignore[method-assign]
        register(servicer, server)

    analyzer_pb2_grpc.add_AnalyzerServicer_to_server = checked


def _document(entries: Mapping[str, Any]) -> dict[str, Any]:
    """What the engine configures, as it stands in the file."""
    document: dict[str, Any] = {}
    for name, entry in entries.items():
        level = analyzer_pb2.EnforcementLevel.Name(entry.enforcementLevel).lower()
        parameters = json_format.MessageToDict(entry.properties)
        document[name] = level if name == ALL else {LEVEL: level, **parameters}
    return document
