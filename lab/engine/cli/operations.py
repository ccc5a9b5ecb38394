"""`preview`, `up`, `refresh` and `destroy`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from lab.engine.backend.history import UpdateRecord
from lab.engine.backend.locks import locked
from lab.engine.cli import flags
from lab.engine.cli.parser import Parser, Verbs
from lab.engine.cli.terminal import confirm, interactive, truthy
from lab.engine.cli.workspace import Workspace
from lab.engine.stackconfig import validate, values
from lab.engine.usererror import ExitCode, UserError

if TYPE_CHECKING:
    from lab.engine.request import Outcome, Request
    from lab.engine.state import Snapshot

Operation = Literal["up", "refresh", "destroy"]

NEEDS_YES = (
    "--yes or --skip-preview or --preview-only must be passed in to proceed"
    " when running in non-interactive mode"
)
_UNCHANGED = frozenset({"same", "read", "read-discard", "read-replacement"})
_WORDS = {"up": "update", "refresh": "refresh", "destroy": "destroy"}


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


class Session:
    """One command: the preview and the run of the same request."""

    def __init__(self, arguments: argparse.Namespace, workspace: Workspace) -> None:
        self._arguments = arguments
        self._workspace = workspace
        self._operation: Operation = arguments.operation
        self._texts = self._configuration()
        self._store = workspace.store()
        self._announced = False

    def preview(self) -> Outcome:
        """Show what would be done."""
        return self._run(preview=True)

    def execute(self) -> Outcome:
        """Do it, and note it in the history of the stack."""
        start = int(time.time())
        outcome = self._run(preview=False)
        file = self._workspace.stack_file
        record = UpdateRecord(
            kind=_WORDS[self._operation],
            start=start,
            end=int(time.time()),
            result="succeeded" if outcome.ok else "failed",
            message=self._arguments.message,
            config={str(key): values.to_yaml(value) for key, value in file.config.items()},
            changes=outcome.changes,
            environment={"exec.kind": "cli", "exec.agent": "gpu-clusters embedded engine"},
        )
        self._workspace.backend.finish(self._workspace.stack, record)
        return outcome

    def ask(self) -> None:
        """Ask whether to go on.

        Raises:
            UserError: no.
        """
        word = _WORDS[self._operation]
        confirm(f"Do you want to perform this {word}?", ask=True, refusal=NEEDS_YES)

    def exit_code(self, outcome: Outcome) -> int:
        """The exit code for an outcome.

        Raises:
            UserError: something is left to be said.
        """
        word = "preview" if self._arguments.verb == "preview" else _WORDS[self._operation]
        if outcome.cancelled:
            raise UserError(outcome.error or f"{word} cancelled", ExitCode.CANCELLED)
        if not outcome.ok:
            if outcome.error and not outcome.bailed:
                raise UserError(outcome.error)
            return ExitCode.FAILED
        if self._arguments.expect_no_changes and _changes(outcome.changes):
            raise UserError(
                f"no changes were expected for {word} but changes were proposed", ExitCode.CHANGES
            )
        return ExitCode.OK

    def remove_stack(self) -> None:
        """Remove the stack and its configuration file after a destroy."""
        workspace = self._workspace
        workspace.backend.remove(workspace.stack, force=False, backups=False)
        workspace.stack_file.path.unlink(missing_ok=True)

    # -- a run of the engine -------------------------------------------------------

    def _run(self, *, preview: bool) -> Outcome:
        # Importing the engine means importing gRPC, which is not needed to find a wrong flag.
        from lab.engine.cli.interrupts import stoppable
        from lab.engine.deployment import run as deploy
        from lab.engine.display import choose

        workspace = self._workspace
        display = choose(
            self._arguments,
            operation=_WORDS[self._operation],
            stack=workspace.stack.name,
            project=workspace.project.name,
            preview=preview,
            config=self._blinded,
            secrets=self._texts,
            announce=not self._announced,
        )
        self._announced = True
        with display, stoppable(display.notice) as cancellation:
            return deploy(
                self._request(preview=preview),
                self._store,
                display.show,
                cancellation,
                self._other_stack,
            )

    def _request(self, *, preview: bool) -> Request:
        from lab.engine.request import ConfigValue, Request

        arguments, workspace = self._arguments, self._workspace
        targets = [*arguments.target, *getattr(arguments, "target_replace", [])]
        replace = [*getattr(arguments, "replace", []), *getattr(arguments, "target_replace", [])]
        return Request(
            project=workspace.project,
            stack=workspace.stack.name,
            operation=self._operation,
            preview=preview,
            config={
                str(key): ConfigValue(
                    value=values.text(tree, self._decrypt),
                    secret=values.is_secret(tree),
                    object=values.is_object(tree),
                )
                for key, tree in workspace.config.items()
            },
            parallel=flags.parallel(arguments),
            refresh=flags.refreshes(
                getattr(arguments, "refresh", None), always=workspace.project.always_refresh
            ),
            targets=tuple(targets),
            target_dependents=arguments.target_dependents,
            excludes=tuple(getattr(arguments, "exclude", [])),
            exclude_dependents=getattr(arguments, "exclude_dependents", False),
            replace=tuple(replace),
            continue_on_error=getattr(arguments, "continue_on_error", False)
            or truthy("PULUMI_CONTINUE_ON_ERROR"),
            message=arguments.message,
            clear_pending_creates=getattr(arguments, "clear_pending_creates", False),
        )

    # -- configuration ---------------------------------------------------------------

    def _configuration(self) -> list[str]:
        """Check the configuration; gives all secret texts in it, which no output may show."""
        workspace = self._workspace
        runs_program = self._operation == "up"
        if runs_program and not self._arguments.skip_config_validation:
            validate(workspace.project, workspace.stack.name, workspace.config)
        self._blinded = {
            str(key): values.text(tree, lambda _: "[secret]")
            for key, tree in sorted(workspace.config.items())
        }
        return [
            self._decrypt(secure.ciphertext)
            for tree in workspace.config.values()
            for secure in values.secrets(tree)
        ]

    def _decrypt(self, ciphertext: str) -> str:
        return self._workspace.manager.crypter.decrypt(ciphertext)

    def _other_stack(self, name: str) -> Snapshot | None:
        """The state of another stack of the backend, for stack references."""
        from lab.engine.backend.checkpoints import open_snapshot, stored_manager

        workspace = self._workspace
        backend = workspace.backend
        reference = workspace.reference(name)
        if not backend.exists(reference):
            return None
        checkpoint = backend.checkpoint(reference)
        manager = stored_manager(checkpoint, workspace.open) or workspace.manager
        return open_snapshot(backend.bucket, reference, checkpoint, manager)


def _changes(changes: Mapping[str, int]) -> bool:
    return any(count for op, count in changes.items() if op not in _UNCHANGED)
