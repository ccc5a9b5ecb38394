"""`preview`, `up`, `refresh` and `destroy`."""

from __future__ import annotations

import argparse

from lab.engine.backend.locks import locked
from lab.engine.cli import flags, protection
from lab.engine.cli.parser import Parser, Verbs
from lab.engine.cli.runs import NEEDS_YES, NEEDS_YES_OR_LOOK, Session
from lab.engine.cli.terminal import agreed, interactive
from lab.engine.cli.workspace import Workspace
from lab.engine.usererror import ExitCode, UserError


def add_verbs(verbs: Verbs, shared: Parser) -> None:
    """Register the four verbs."""
    common = (flags.add_common, flags.add_excludes)
    program = (flags.add_refresh, flags.add_replace, flags.add_expectation)
    verbs_and_flags = {
        "preview": ("show what `up` would do", ("pre",), program),
        "up": (
            "create, update and delete what the program says",
            ("update",),
            (*program, flags.add_run, flags.add_continue, flags.add_secrets_provider),
        ),
        "refresh": (
            "take over what is really there",
            (),
            (
                flags.add_expectation,
                flags.add_run,
                flags.add_preview_only,
                flags.add_pending_creates,
            ),
        ),
        "destroy": (
            "delete everything in a stack",
            ("down", "dn"),
            (
                flags.add_refresh,
                flags.add_run,
                flags.add_preview_only,
                flags.add_continue,
                flags.add_destroy,
            ),
        ),
    }
    for name, (text, aliases, parts) in verbs_and_flags.items():
        parser = verbs.add_parser(
            name, parents=[shared], allow_abbrev=False, help=text, aliases=aliases
        )
        for part in (*common, *parts):
            part(parser)
        parser.set_defaults(run=run, operation="up" if name == "preview" else name, verb=name)


def run(arguments: argparse.Namespace) -> int:
    """Carry out one of the four verbs."""
    flags.check(arguments)
    workspace = Workspace(arguments)
    preview_only = arguments.verb == "preview" or getattr(arguments, "preview_only", False)
    if not preview_only:
        _may_go_on(arguments)
    _set_configuration(arguments, workspace)
    kept = protection.exclude(arguments, workspace)
    if kept is not None and kept.everything:
        if not arguments.json:
            print(kept.nothing_to_do)
        return 0
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
    if arguments.verb == "destroy" and outcome.ok:
        _after_destroy(arguments, session, kept)
    return code


def _after_destroy(
    arguments: argparse.Namespace, session: Session, kept: protection.Protected | None
) -> None:
    """Remove the stack if that is wanted; else say what is left."""
    if kept is not None and kept.count:
        if not arguments.json:
            print(kept.all_done)
        return
    if arguments.target or arguments.exclude:
        return
    if arguments.remove:
        session.remove_stack()
    if not arguments.json:
        print(flags.REMOVED if arguments.remove else flags.kept(session.stack))


def _agreed(arguments: argparse.Namespace) -> bool:
    return bool(arguments.skip_preview) or agreed(arguments)


def _may_go_on(arguments: argparse.Namespace) -> None:
    if not _agreed(arguments) and not interactive(arguments):
        raise UserError(
            NEEDS_YES if arguments.verb == "up" else NEEDS_YES_OR_LOOK, ExitCode.CONFIGURATION
        )


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
