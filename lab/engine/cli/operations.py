"""`preview`, `up`, `refresh` and `destroy`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from lab.engine.backend.locks import locked
from lab.engine.cli import flags
from lab.engine.cli.parser import Parser, Verbs
from lab.engine.cli.runs import NEEDS_YES, Session
from lab.engine.cli.terminal import interactive, truthy
from lab.engine.cli.workspace import Workspace
from lab.engine.usererror import ExitCode, UserError


def add_verbs(verbs: Verbs, shared: Parser) -> None:
    """Register the four verbs."""

    def verb(name: str, text: str, *parts: Callable[[Parser], None]) -> None:
        aliases = ["update"] if name == "up" else ["pre"] if name == "preview" else []
        parser = verbs.add_parser(
            name, parents=[shared], allow_abbrev=False, help=text, aliases=aliases
        )
        for part in (flags.add_common, *parts):
            part(parser)
        if name == "refresh":
            parser.add_argument(
                "--clear-pending-creates",
                action="store_true",
                help="forget creates that were cut off",
            )
            parser.add_argument(
                "--skip-pending-creates", action="store_true", help="keep them; the default"
            )
        if name in ("refresh", "destroy"):
            parser.add_argument("--preview-only", action="store_true", help="change nothing")
        if name == "destroy":
            parser.add_argument("--remove", action="store_true", help="remove the stack afterwards")
        if name in ("up", "destroy"):
            parser.add_argument(
                "--continue-on-error", action="store_true", help="finish what does not depend on it"
            )
        parser.set_defaults(run=run, operation="up" if name == "preview" else name, verb=name)

    verb(
        "preview",
        "show what `up` would do",
        flags.add_refresh,
        flags.add_excludes,
        flags.add_replace,
    )
    verb(
        "up",
        "create, update and delete what the program says",
        flags.add_refresh,
        flags.add_excludes,
        flags.add_replace,
        flags.add_run,
    )
    verb("refresh", "take over what is really there", flags.add_excludes, flags.add_run)
    verb(
        "destroy",
        "delete everything in a stack",
        flags.add_refresh,
        flags.add_excludes,
        flags.add_run,
    )


def run(arguments: argparse.Namespace) -> int:
    """Carry out one of the four verbs."""
    flags.check(arguments)
    workspace = Workspace(arguments)
    preview_only = arguments.verb == "preview" or getattr(arguments, "preview_only", False)
    if not preview_only:
        _may_go_on(arguments)
    _set_configuration(arguments, workspace)
    session = Session(arguments, workspace)
    if preview_only:
        return session.exit_code(session.preview())
    with locked(workspace.backend.bucket, workspace.stack):
        if not arguments.skip_preview:
            outcome = session.preview()
            if not outcome.ok:
                return session.exit_code(outcome)
            if not _agreed(arguments):
                session.ask()
        outcome = session.execute()
    code = session.exit_code(outcome)
    if getattr(arguments, "remove", False) and outcome.ok:
        session.remove_stack()
    return code


def _agreed(arguments: argparse.Namespace) -> bool:
    return bool(arguments.yes or arguments.skip_preview or truthy("PULUMI_SKIP_CONFIRMATIONS"))


def _may_go_on(arguments: argparse.Namespace) -> None:
    if not _agreed(arguments) and not interactive(arguments):
        raise UserError(NEEDS_YES, ExitCode.CONFIGURATION)


def _set_configuration(arguments: argparse.Namespace, workspace: Workspace) -> None:
    if not arguments.config:
        return
    from lab.engine.cli.configuration import set_plain

    for pair in arguments.config:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"--config {pair!r}: write KEY=VALUE", ExitCode.CONFIGURATION)
        set_plain(workspace, key, value, path=arguments.config_path)
    workspace.stack_file.save()
