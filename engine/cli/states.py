"""`state …`: changing the state of a stack by hand, without touching what it describes."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.cli.parser import Commands, actions, command, stack_flags
from engine.cli.terminal import agreed, confirm, interactive
from engine.cli.workspace import Workspace
from engine.usererror import ExitCode, UserError

Resource = Mapping[str, Any]
Resources = list[dict[str, Any]]


def add_verbs(verbs: Commands) -> None:
    """Register `state` and what is below it."""
    state = command(verbs, "state", None, "edit the state of a stack")
    below = actions(state)
    delete = command(below, "delete", _delete, "forget resources", optional=("urn",))
    delete.add_argument("urn", nargs="?", metavar="URN")
    delete.add_argument("--force", action="store_true", help="protected ones as well")
    delete.add_argument("--target-dependents", action="store_true", help="and what needs it")
    text = "allow resources to be deleted"
    unprotect = command(below, "unprotect", _unprotect, text, optional=("urn",))
    unprotect.add_argument("urn", nargs="*", metavar="URN")
    for parser in (delete, unprotect):
        parser.add_argument("--all", action="store_true", help="all resources of the stack")
        parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    for parser in (state, delete, unprotect):
        stack_flags(parser)


def _delete(arguments: argparse.Namespace) -> int:
    if bool(arguments.urn) == arguments.all:
        raise UserError("name the URN of a resource, or pass --all", ExitCode.CONFIGURATION)

    def change(resources: Resources) -> Resources:
        if not arguments.all:
            return without(
                resources,
                arguments.urn,
                force=arguments.force,
                dependents=arguments.target_dependents,
            )
        # From the last one backwards: nothing is left that needs what goes.
        for resource in reversed(list(resources)):
            resources = without(resources, resource["urn"], force=arguments.force, dependents=False)
        return resources

    return _edit(arguments, change, "Resources deleted" if arguments.all else "Resource deleted")


def _unprotect(arguments: argparse.Namespace) -> int:
    if bool(arguments.urn) == arguments.all:
        raise UserError("name the URNs of resources, or pass --all", ExitCode.CONFIGURATION)
    return _edit(
        arguments,
        lambda resources: unprotected(resources, arguments.urn),
        "Resources unprotected",
    )


def _edit(
    arguments: argparse.Namespace, change: Callable[[Resources], Resources], done: str
) -> int:
    workspace = Workspace(arguments)
    stack = workspace.stack
    checkpoint = workspace.backend.checkpoint(stack)
    resources = change([dict(resource) for resource in checkpoint.resources])
    if not agreed(arguments):
        confirm(
            f"This command will edit the state of '{stack.name}' directly. Go on?",
            ask=interactive(arguments),
            refusal="non-interactive mode requires --yes flag",
        )
    deployment = dict(checkpoint.deployment or {})
    if resources:
        deployment["resources"] = resources
    else:
        deployment.pop("resources", None)
    workspace.backend.replace(stack, deployment, checkpoint)
    print(done)
    return 0


def _find(resources: Sequence[Resource], urn: str) -> None:
    """Make sure that there is such a resource."""
    if not any(resource["urn"] == urn for resource in resources):
        raise UserError(
            f"no such resource {urn!r} exists in the current state;"
            " `stack export` has what there is"
        )


def needs(resource: Resource) -> set[str]:
    """The URNs that a resource of a state cannot be without."""
    found = {resource.get("parent"), resource.get("deletedWith")}
    found |= set(resource.get("dependencies") or ())
    found |= {u for us in (resource.get("propertyDependencies") or {}).values() for u in us or ()}
    found.add(str(resource.get("provider") or "").rpartition("::")[0])
    return {str(urn) for urn in found if urn}


def without(resources: Resources, urn: str, *, force: bool, dependents: bool) -> Resources:
    """The resources less one, or less all that need it as well."""
    _find(resources, urn)
    gone = {urn}
    users = []
    for resource in resources:
        if resource["urn"] not in gone and needs(resource) & gone:
            users.append(str(resource["urn"]))
            if dependents:
                gone.add(resource["urn"])
    if users and not dependents:
        listed = "\n".join(f"  * {user}" for user in users)
        raise UserError(
            f"{urn} can't be safely deleted because the following resources depend on it:\n{listed}"
            "\nDelete those resources first or pass --target-dependents."
        )
    for resource in resources:
        if resource["urn"] in gone and resource.get("protect") and not force:
            raise UserError(
                f"{resource['urn']} can't be safely deleted because it is protected."
                " Run `state unprotect` first, or pass --force"
            )
    return [resource for resource in resources if resource["urn"] not in gone]


def unprotected(resources: Resources, urns: Sequence[str]) -> Resources:
    """The resources without the protection of these, or of all if none is named."""
    for urn in urns:
        _find(resources, urn)
    return [
        {key: value for key, value in resource.items() if key != "protect"}
        if not urns or resource["urn"] in urns
        else resource
        for resource in resources
    ]
