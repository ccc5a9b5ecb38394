"""`state …`: changing the state of a stack by hand, without touching what it describes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from lab.engine.cli.parser import Parser, Verbs, stack_flags
from lab.engine.cli.terminal import confirm, interactive
from lab.engine.cli.workspace import Workspace
from lab.engine.usererror import ExitCode, UserError

_REFUSED = ("edit", "get", "move", "repair", "rename", "taint", "untaint", "upgrade")
Resources = list[dict[str, Any]]


def add_verbs(verbs: Verbs, shared: Parser) -> None:
    """Register `state` and what is below it."""
    state = verbs.add_parser(
        "state", parents=[shared], allow_abbrev=False, help="edit the state of a stack"
    )
    below = state.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=Parser
    )

    def action(name: str, run: object) -> Parser:
        parser = below.add_parser(name, parents=[shared], allow_abbrev=False)
        parser.set_defaults(run=run)
        stack_flags(parser)
        parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
        return parser

    delete = action("delete", _delete)
    delete.add_argument("urn", metavar="URN")
    delete.add_argument("--force", action="store_true", help="protected ones as well")
    delete.add_argument("--target-dependents", action="store_true", help="and what needs it")
    for name, run in (("protect", _protect), ("unprotect", _unprotect)):
        parser = action(name, run)
        parser.add_argument("urn", nargs="*", metavar="URN")
        parser.add_argument("--all", action="store_true", help="all resources of the stack")
    for name in _REFUSED:
        action(name, _refuse).add_argument("rest", nargs="*")


def _refuse(arguments: argparse.Namespace) -> int:
    raise UserError(
        f"`state {arguments.action}` is not part of the embedded engine; use the Pulumi CLI",
        ExitCode.CONFIGURATION,
    )


def _delete(arguments: argparse.Namespace) -> int:
    def change(resources: Resources) -> Resources:
        _find(resources, arguments.urn)
        gone = {arguments.urn}
        for resource in resources:
            if resource["urn"] not in gone and needs(resource) & gone:
                if not arguments.target_dependents:
                    raise UserError(
                        f"{resource['urn']} depends on {arguments.urn}; delete it first"
                        " or pass --target-dependents"
                    )
                gone.add(resource["urn"])
        for resource in resources:
            if resource["urn"] in gone and resource.get("protect") and not arguments.force:
                raise UserError(
                    f"{resource['urn']} is protected; pass --force or run `state unprotect` first"
                )
        return [resource for resource in resources if resource["urn"] not in gone]

    return _edit(arguments, change, "Resource deleted")


def _protect(arguments: argparse.Namespace) -> int:
    return _mark(arguments, protect=True)


def _unprotect(arguments: argparse.Namespace) -> int:
    return _mark(arguments, protect=False)


def _mark(arguments: argparse.Namespace, *, protect: bool) -> int:
    if bool(arguments.urn) == arguments.all:
        raise UserError("name the URNs of resources, or pass --all", ExitCode.CONFIGURATION)

    def change(resources: Resources) -> Resources:
        for urn in arguments.urn:
            _find(resources, urn)
        return [
            _with_protection(r, protect=protect)
            if arguments.all or r["urn"] in arguments.urn
            else r
            for r in resources
        ]

    word = "protected" if protect else "unprotected"
    return _edit(arguments, change, f"Resources {word}")


def _with_protection(resource: Mapping[str, Any], *, protect: bool) -> dict[str, Any]:
    rest = {key: value for key, value in resource.items() if key != "protect"}
    return {**rest, "protect": True} if protect else rest


def _edit(
    arguments: argparse.Namespace, change: Callable[[Resources], Resources], done: str
) -> int:
    workspace = Workspace(arguments)
    stack = workspace.stack
    if not arguments.yes:
        confirm(
            f"This command will edit the state of '{stack.name}' directly. Go on?",
            ask=interactive(arguments),
            refusal="non-interactive mode requires --yes flag",
        )
    checkpoint = workspace.backend.checkpoint(stack)
    resources = change([dict(resource) for resource in checkpoint.resources])
    deployment = dict(checkpoint.deployment or {})
    if resources:
        deployment["resources"] = resources
    else:
        deployment.pop("resources", None)
    workspace.backend.replace(stack, deployment, checkpoint.version)
    print(done)
    return 0


def _find(resources: Resources, urn: str) -> None:
    if not any(resource["urn"] == urn for resource in resources):
        raise UserError(
            f"no such resource {urn!r} exists in the current state;"
            " `stack --show-urns` lists what there is"
        )


def needs(resource: Mapping[str, Any]) -> set[str]:
    """The URNs that a resource of a state cannot be without."""
    urns = {resource.get("parent"), resource.get("deletedWith")}
    urns |= set(resource.get("dependencies") or ())
    urns |= {u for us in (resource.get("propertyDependencies") or {}).values() for u in us or ()}
    urns.add(str(resource.get("provider") or "").rpartition("::")[0])
    return {str(urn) for urn in urns if urn}
