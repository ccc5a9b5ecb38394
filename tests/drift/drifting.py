"""Events and findings made by hand for tests of drift."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gpuclusters.drift import report as reporting
from gpuclusters.drift.engine import View, read
from gpuclusters.drift.report import Finding, Looked, Report, Unseen
from tests.fixtures import made_up

DYNAMIC = "gpu-clusters:gpu:"
CONNECTION = {**made_up.CONNECTION, "port": 22.0, "user": "operator"}


def urn(type_: str, name: str) -> str:
    return f"urn:pulumi:prod::gpu-clusters::{type_}::{name}"


def state(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Any]:
    return {"inputs": dict(inputs), "outputs": {**inputs, **outputs}, "parent": ""}


def before(type_: str, name: str, old: Any) -> dict[str, Any]:
    return {
        "resourcePreEvent": {"metadata": {"op": "refresh", "urn": urn(type_, name), "old": old}}
    }


def after(type_: str, name: str, old: Any, new: Any, op: str = "refresh") -> dict[str, Any]:
    metadata = {"op": op, "urn": urn(type_, name), "old": old, "new": new}
    return {"resOutputsEvent": {"metadata": metadata}}


def step(op: str, type_: str, name: str) -> dict[str, Any]:
    return {"resourcePreEvent": {"metadata": {"op": op, "urn": urn(type_, name)}}}


def error(message: str, type_: str = "", name: str = "") -> dict[str, Any]:
    where = {"urn": urn(type_, name)} if type_ else {}
    return {"diagnosticEvent": {**where, "message": message, "severity": "error"}}


def summary(result: str = "succeeded") -> dict[str, Any]:
    return {"summaryEvent": {"result": result, "isPreview": True, "resourceChanges": {}}}


def text(*events: Mapping[str, Any]) -> str:
    return "".join(f"{json.dumps(event)}\n" for event in events)


def resource(
    kind: str,
    name: str,
    inputs: Mapping[str, Any],
    old: Mapping[str, Any],
    new: Mapping[str, Any] | None,
) -> str:
    """A refresh of one resource: `new` is what changed of its outputs, None if it is gone."""
    type_ = kind if ":" in kind else DYNAMIC + kind
    known = state(inputs, old)
    live = None if new is None else state(inputs, {**old, **new})
    return text(before(type_, name, known), after(type_, name, known, live))


def finding(
    id_: str = "host.unit-failed", where: str = "hgx-01", what: str = "a.service", **more: Any
) -> Finding:
    return Finding(id_, where, what, **{"declared": "not failed", "found": "failed", **more})


def view_of(said: str) -> View:
    return read(said.splitlines())


def report(
    stack: str,
    findings: Iterable[Finding] = (),
    unseen: Iterable[Unseen] = (),
    looked: Iterable[Looked] = (),
    **more: Any,
) -> Report:
    return reporting.report(stack, [*findings, *unseen, *looked], **more)
