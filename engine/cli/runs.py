"""One command of the four: its preview and its run, and how it ends."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from engine.backend.history import UpdateRecord
from engine.cli.terminal import coloured, confirm, truthy
from engine.cli.workspace import Workspace
from engine.events import Event
from engine.request import Cancellation
from engine.stackconfig import values
from engine.stackconfig.effective import refuse_unsupported, validate
from engine.usererror import ExitCode, UserError

if TYPE_CHECKING:
    from engine.display.base import Display, Options
    from engine.events import Event
    from engine.request import Outcome, Request

FIRST = (
    "^C received; cancelling. Steps that are running will be finished."
    " To terminate immediately, press ^C again: that may leave things half made."
)
SECOND = "^C received twice; terminating at once."


@contextlib.contextmanager
def stoppable(notice: Callable[[str], None]) -> Iterator[Cancellation]:
    """A cancellation that ^C and a termination signal ask for."""
    cancellation = Cancellation()
    texts = iter((FIRST, SECOND))
    wakes, wake = socket.socketpair()
    wake.setblocking(False)  # noqa: FBT003

    def listen() -> None:
        with wakes:
            while wakes.recv(1):
                # A listener may wait for what a second request breaks off.
                threading.Thread(target=ask, args=(next(texts, ""),), daemon=True).start()

    def ask(text: str) -> None:
        if text:
            notice(text)
        cancellation.request()

    # A handler in Python runs when the main thread wakes up, and a signal that comes just before it
    # goes to sleep does not wake it: the second ^C could wait for what it is to break off. The
    # descriptor is written to at once.
    before = {n: signal.signal(n, lambda *_: None) for n in (signal.SIGINT, signal.SIGTERM)}
    descriptor = signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=listen, daemon=True).start()
    try:
        yield cancellation
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():
            signal.signal(number, handler)
        wake.close()


class Screen:
    """Hands events on until the display fails; the run goes on without being shown.

    A half-done deployment is worse than one that nobody watched.
    """

    def __init__(self, show: Callable[[Event], None]) -> None:
        self._show = show
        self._fault: Exception | None = None

    def show(self, event: Event) -> None:
        """Show an event if that is still possible."""
        if self._fault is not None:
            return
        try:
            self._show(event)
        except BrokenPipeError as error:
            # Whoever read our output has gone: `up | head`.
            self._fault = error
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except Exception as error:  # noqa: BLE001 - raised by `close`
            self._fault = error

    def close(self) -> None:
        """Raise what went wrong with the display, now that the run is over."""
        if self._fault is not None and not isinstance(self._fault, BrokenPipeError):
            raise self._fault


Operation = Literal["up", "refresh", "destroy"]

NEEDS_YES = (
    "--yes or --skip-preview must be passed in to proceed when running in non-interactive mode"
)
NEEDS_YES_OR_LOOK = NEEDS_YES.replace(
    "--skip-preview must", "--skip-preview or --preview-only must"
)
WORDS = {"up": "update", "refresh": "refresh", "destroy": "destroy"}
# Pulumi's own default: four steps at a time for each processor.
STEPS_PER_CPU = 4


class Session:
    """One command: the preview and the run of the same request."""

    def __init__(self, arguments: argparse.Namespace, workspace: Workspace) -> None:
        self._arguments = arguments
        self._workspace = workspace
        self._operation: Operation = arguments.operation
        self._texts = self._configuration()
        self._store = workspace.store()
        self._planned: list[Event] = []

    @property
    def stack(self) -> str:
        return self._workspace.stack.name

    def preview(self) -> Outcome:
        return self._run(preview=True)

    def execute(self) -> Outcome:
        """Do it, and note it in the history of the stack."""
        start = int(time.time())
        outcome = self._run(preview=False)
        file = self._workspace.stack_file
        record = UpdateRecord(
            kind=WORDS[self._operation],
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
        word = WORDS[self._operation]
        question = f"Do you want to perform this {word}?"
        confirm(question, ask=True, refusal=NEEDS_YES, details=self._show_details)

    def _show_details(self) -> None:
        from engine.display.difference import Differences

        with Differences(self._options(preview=True)) as display:
            for event in self._planned:
                display.show(event)

    def exit_code(self, outcome: Outcome) -> int:
        word = "preview" if self._arguments.verb == "preview" else WORDS[self._operation]
        if outcome.cancelled:
            return ExitCode.CANCELLED
        if not outcome.ok:
            return ExitCode.FAILED
        expected = getattr(self._arguments, "expect_no_changes", False)
        if expected and _changes(outcome.changes):
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
        # gRPC's C core prints notices of its own into what programs and providers print.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        # Importing the engine means importing gRPC, which is not needed to find a wrong flag.
        from engine import deployment

        options = self._options(preview=preview)
        with self._display(options) as display:
            screen = Screen(display.show)

            def show(event: Event) -> None:
                if preview:
                    self._planned.append(event)
                screen.show(event)

            with stoppable(display.notice) as cancellation:
                request = self._request(preview=preview)
                outcome = deployment.run(request, self._store, show, cancellation)
                screen.close()
        return outcome

    def _display(self, options: Options) -> Display:
        if self._arguments.json:
            from engine.display.digest import Digest
            from engine.display.eventlines import EventLines

            streaming = truthy("PULUMI_ENABLE_STREAMING_JSON_PREVIEW")
            return Digest(options) if options.preview and not streaming else EventLines(options)
        if self._arguments.diff:
            from engine.display.difference import Differences

            return Differences(options)
        from engine.display.lines import Lines

        return Lines(options)

    def _options(self, *, preview: bool) -> Options:
        from engine.display.base import Masker, Options

        arguments = self._arguments
        return Options(
            operation=WORDS[self._operation],
            stack=self._workspace.stack.name,
            project=self._workspace.project.name,
            preview=preview,
            config=self._blinded,
            mask=Masker(self._texts),
            colour=coloured(arguments),
            show_same=arguments.show_sames,
            show_replacement_steps=arguments.show_replacement_steps,
            debug=arguments.debug,
        )

    def _request(self, *, preview: bool) -> Request:
        from engine.request import ConfigValue, Request

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
                )
                for key, tree in workspace.config.items()
            },
            parallel=arguments.parallel or STEPS_PER_CPU * (os.cpu_count() or 1),
            refresh=self._refreshes(),
            targets=tuple(targets),
            target_dependents=arguments.target_dependents,
            excludes=tuple(arguments.exclude),
            replace=tuple(replace),
            continue_on_error=getattr(arguments, "continue_on_error", False)
            or truthy("PULUMI_CONTINUE_ON_ERROR"),
            debug=arguments.debug,
            clear_pending_creates=getattr(arguments, "clear_pending_creates", False),
        )

    def _refreshes(self) -> bool:
        """Whether to refresh first: the flag, else the environment, else the project."""
        chosen = getattr(self._arguments, "refresh", None) or os.environ.get("PULUMI_REFRESH")
        if chosen is None:
            return self._workspace.project.always_refresh
        return chosen.lower() in ("true", "1")

    # -- configuration ---------------------------------------------------------------

    def _configuration(self) -> list[str]:
        """Check the configuration; gives all secret texts in it, which no output may show."""
        workspace = self._workspace
        refuse_unsupported(workspace.config)
        if self._operation == "up":
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
        return self._workspace.manager.decrypt(ciphertext)


def _changes(changes: Mapping[str, int]) -> bool:
    return any(count for op, count in changes.items() if op != "same")
