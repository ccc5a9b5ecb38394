"""`preview`, `up`, `refresh` and `destroy`: their flags, and what happens around a run."""

import argparse
import os
from typing import Any

from engine.backend.locks import locked
from engine.cli.parser import PROGRAM, Commands, command, stack_flags, truth
from engine.cli.runs import NEEDS_YES, NEEDS_YES_OR_LOOK, Session
from engine.cli.terminal import agreed, interactive
from engine.cli.workspace import Workspace, check_provider
from engine.usererror import ExitCode, UserError

_VERBS = {
    "preview": ("show what `up` would do", ("pre",)),
    "up": ("create, update and delete what the program says", ("update",)),
    "refresh": ("take over what is really there", ()),
    "destroy": ("delete everything in a stack", ("down", "dn")),
}
_SWITCH: dict[str, Any] = {"action": "store_true"}
_URNS: dict[str, Any] = {"action": "append", "default": [], "metavar": "URN"}
_TRUTH: dict[str, Any] = {"type": truth, "metavar": "true|false"}
_ALL, _RUNS = ("preview", "up", "refresh", "destroy"), ("up", "refresh", "destroy")
_PROGRAM, _LOOKS = ("preview", "up"), ("refresh", "destroy")
_FLAGS: tuple[tuple[tuple[str, ...], tuple[str, ...], dict[str, Any], str], ...] = (
    (_ALL, ("--json", "-j"), _SWITCH, "print JSON"),
    (_ALL, ("--diff",), _SWITCH, "show what differs, property by property"),
    (_ALL, ("--message", "-m"), {"default": ""}, "what the history says about this run"),
    (_ALL, ("--parallel", "-p"), {"type": int, "metavar": "N"}, "steps that may run at a time"),
    (_ALL, ("--debug", "-d"), _SWITCH, "show what the program and plugins log"),
    (_ALL, ("--target", "-t"), _URNS, "only these resources"),
    (_ALL, ("--target-dependents",), _SWITCH, "and what depends on them"),
    (_ALL, ("--exclude", "-x"), _URNS, "not these resources"),
    (_ALL, ("--show-replacement-steps",), _SWITCH, "a replacement in its parts"),
    (_ALL, ("--show-sames",), _SWITCH, "show what does not change as well"),
    (_PROGRAM, ("--replace",), _URNS, "replace these resources"),
    (_PROGRAM, ("--target-replace",), _URNS, "--target, --replace"),
    ((*_PROGRAM, "destroy"), ("--refresh", "-r"), _TRUTH, "read what is really there first"),
    ((*_PROGRAM, "refresh"), ("--expect-no-changes",), _SWITCH, "exit with 7 if there are changes"),
    (_RUNS, ("--yes", "-y"), _SWITCH, "do not ask"),
    (_RUNS, ("--skip-preview", "-f"), _SWITCH, "go ahead without a preview; implies -y"),
    (("up", "destroy"), ("--continue-on-error",), _SWITCH, "finish what does not depend on it"),
    (_LOOKS, ("--preview-only",), _SWITCH, "change nothing"),
    (("refresh",), ("--clear-pending-creates",), _SWITCH, "forget creates that were cut off"),
    (("up",), ("--secrets-provider",), {"default": "default"}, "of a new stack: passphrase"),
    (("destroy",), ("--remove",), _SWITCH, "remove the stack afterwards"),
)

REMOVED = "The resources in the stack have been deleted, and the history and configuration removed."
KEPT = (
    "The resources in the stack have been deleted, but the history and configuration associated"
    f" with the stack are still maintained.\nIf you want to remove the stack completely, run `{PROGRAM}"
    " stack rm {stack}`."
)


def add_verbs(verbs: Commands) -> None:
    for name, (text, aliases) in _VERBS.items():
        parser = command(verbs, name, run, text, *aliases)
        stack_flags(parser, file=True)
        for of, names, settings, what in _FLAGS:
            if name in of:
                parser.add_argument(*names, **settings, help=what)
        parser.set_defaults(operation="up" if name == "preview" else name, verb=name)


def run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    workspace = Workspace(arguments)
    preview_only = arguments.verb == "preview" or getattr(arguments, "preview_only", False)
    if not preview_only:
        _may_go_on(arguments)
    session = Session(arguments, workspace)
    if preview_only:
        return session.exit_code(session.preview())
    with locked(workspace.backend.bucket, workspace.stack):
        if not arguments.skip_preview:
            outcome = session.preview()
            if not outcome.ok:
                return session.exit_code(outcome)
            if not agreed(arguments):
                session.ask()
        outcome = session.execute()
    code = session.exit_code(outcome)
    if arguments.verb == "destroy" and outcome.ok and not (arguments.target or arguments.exclude):
        if arguments.remove:
            session.remove_stack()
        if not arguments.json:
            print(REMOVED if arguments.remove else KEPT.format(stack=session.stack))
    return code


def _check(arguments: argparse.Namespace) -> None:
    """Refuse flags that do not go together."""
    targets = arguments.target or getattr(arguments, "target_replace", [])
    if arguments.target and arguments.exclude:
        raise UserError("--target and --exclude cannot be used together", ExitCode.CONFIGURATION)
    if arguments.target_dependents and not targets:
        raise UserError("--target-dependents needs a --target", ExitCode.CONFIGURATION)
    check_provider(getattr(arguments, "secrets_provider", "default"))
    if arguments.parallel is not None and arguments.parallel < 1:
        raise UserError("--parallel has to be 1 or more", ExitCode.CONFIGURATION)
    if arguments.parallel is None and (given := os.environ.get("PULUMI_PARALLEL", "")):
        if not given.isdigit() or int(given) < 1:
            raise UserError(
                f"PULUMI_PARALLEL is {given!r}; it has to be a number of 1 or more",
                ExitCode.CONFIGURATION,
            )
        arguments.parallel = int(given)


def _may_go_on(arguments: argparse.Namespace) -> None:
    if not (arguments.skip_preview or agreed(arguments) or interactive(arguments)):
        raise UserError(
            NEEDS_YES if arguments.verb == "up" else NEEDS_YES_OR_LOOK, ExitCode.CONFIGURATION
        )
