"""`stack …`: make, select, list and remove stacks."""

import argparse

from engine.backend import address
from engine.backend.checkpoints import empty_deployment
from engine.backend.locks import held
from engine.cli import stackdata
from engine.cli.parser import Commands, actions, command, stack_flags
from engine.cli.terminal import agreed, confirm, interactive, print_json, print_table
from engine.cli.workspace import Workspace, check_provider
from engine.usererror import ExitCode, UserError


def add_verbs(verbs: Commands) -> None:
    """Register `stack` and what is below it."""
    stack = command(verbs, "stack", None, "manage stacks and their state")
    stack_flags(stack)
    below = actions(stack)
    init = command(below, "init", _init, "make a stack", "new", optional=("name",))
    init.add_argument("--no-select", action="store_true")
    listing = command(below, "ls", _list, "list stacks", "list")
    listing.add_argument("--json", "-j", action="store_true")
    listing.add_argument("--all", "-a", action="store_true")
    listing.add_argument("--project", "-p", metavar="NAME")
    select = command(below, "select", _select, "choose a stack", optional=("name",))
    select.add_argument("--create", "-c", action="store_true")
    remove = command(below, "rm", _remove, "remove a stack", "remove", "delete", optional=("name",))
    remove.add_argument("--force", "-f", action="store_true")
    remove.add_argument("--yes", "-y", action="store_true")
    remove.add_argument("--preserve-config", action="store_true")
    remove.add_argument("--remove-backups", action="store_true")
    for parser in (init, select):
        parser.add_argument(
            "--secrets-provider", default="default", metavar="passphrase", help="of a new stack"
        )
    for parser in (init, select, remove):
        parser.add_argument("name", nargs="?", metavar="NAME")
        stack_flags(parser)
    stackdata.add_actions(below)


def _init(arguments: argparse.Namespace) -> int:
    check_provider(arguments.secrets_provider)
    name = _given_name(arguments)
    workspace = Workspace(arguments)
    stack = workspace.reference(name)
    if workspace.backend.exists(stack):
        raise UserError(f"stack '{stack}' already exists")
    workspace.backend.create(stack, empty_deployment(workspace.new_manager(stack)))
    if not arguments.no_select:
        address.select(workspace.home, workspace.project, str(stack))
    print(f"Created stack '{stack.name}'")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    project = arguments.project or (None if arguments.all else workspace.project.name)
    rows = []
    for stack in workspace.backend.stacks(project):
        checkpoint = workspace.backend.checkpoint(stack)
        manifest = (checkpoint.deployment or {}).get("manifest") or {}
        count = len(checkpoint.resources)
        current = _current(workspace) in (stack.name, str(stack))
        rows.append((stack, current, str(manifest.get("time", "")) if count else "", count))
    if arguments.json:
        print_json(
            [
                {
                    "name": workspace.shown(stack),
                    "current": current,
                    **({"lastUpdate": updated} if updated else {}),
                    "updateInProgress": bool(held(workspace.backend.bucket, stack)),
                    "resourceCount": count,
                }
                for stack, current, updated, count in rows
            ]
        )
        return 0
    print_table(
        ("NAME", "LAST UPDATE", "RESOURCE COUNT"),
        [
            (workspace.shown(stack) + ("*" if current else ""), updated or "n/a", str(count))
            for stack, current, updated, count in rows
        ],
    )
    return 0


def _current(workspace: Workspace) -> str | None:
    try:
        return address.selected(workspace.home, workspace.project)
    except UserError:
        # `stack ls --all` works outside of a project, where nothing is selected.
        return None


def _select(arguments: argparse.Namespace) -> int:
    check_provider(arguments.secrets_provider)
    workspace = Workspace(arguments)
    name = _given_name(arguments)
    stack = workspace.reference(name)
    if arguments.create and not workspace.backend.exists(stack):
        arguments.no_select = False
        return _init(arguments)
    workspace.backend.require(stack)
    address.select(workspace.home, workspace.project, str(stack))
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    arguments.stack = arguments.stack or arguments.name
    workspace = Workspace(arguments)
    stack = workspace.stack
    if not agreed(arguments):
        confirm(
            f"This will permanently remove the '{stack.name}' stack!",
            ask=interactive(arguments),
            refusal="non-interactive mode requires --yes flag",
        )
    workspace.backend.remove(stack, force=arguments.force, backups=arguments.remove_backups)
    if not arguments.preserve_config:
        workspace.project.stack_file(stack.name).unlink(missing_ok=True)
    if address.selected(workspace.home, workspace.project) in (stack.name, str(stack)):
        address.select(workspace.home, workspace.project, None)
    print(f"Stack '{stack.name}' has been removed!")
    return 0


def _given_name(arguments: argparse.Namespace) -> str:
    if arguments.name and arguments.stack:
        raise UserError(
            "only one of --stack or argument stack name may be specified, not both",
            ExitCode.CONFIGURATION,
        )
    name = arguments.name or arguments.stack
    if not name:
        raise UserError("missing stack name", ExitCode.CONFIGURATION)
    return str(name)
