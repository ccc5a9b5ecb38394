"""Runs one preview, up, refresh or destroy."""

import concurrent.futures
import threading
import time
from collections.abc import Callable

import grpc

from engine.deletes import TargetError, plan_deletes, run_deletes
from engine.drafts import Drafts
from engine.engine_service import Engine
from engine.events import Cancel, Event, Prelude, Summary
from engine.executor import Executor
from engine.keeper import Keeper
from engine.monitor import Monitor
from engine.planner import Planner
from engine.plugins import Plugins
from engine.program import MESSAGE_SHOWN, Program, ProgramError
from engine.protocol import CHANNEL_OPTIONS, engine_pb2_grpc, resource_pb2_grpc
from engine.providers import Registry
from engine.refresh import refresh
from engine.registrar import Registrar
from engine.reporter import Reporter
from engine.request import Cancellation, Outcome, Request, SnapshotStore
from engine.session import Session
from engine.targets import Targets

_SPARE_WORKERS = 32


def run(
    request: Request,
    store: SnapshotStore,
    emit: Callable[[Event], None],
    cancel: Cancellation,
) -> Outcome:
    """Carry out a request; events go to `emit` one at a time, from several threads."""
    return Deployment(request, store, emit, cancel).run()


class Deployment:
    """All that belongs to one run, from its first event to its last."""

    def __init__(
        self,
        request: Request,
        store: SnapshotStore,
        emit: Callable[[Event], None],
        cancel: Cancellation,
    ) -> None:
        self._request = request
        self._cancel = cancel
        self._began = time.monotonic()
        self._failed = self._told = False
        self._refresh_only = request.operation == "refresh"
        reporter = Reporter(emit, preview=request.preview, refresh_only=self._refresh_only)
        self._reporter = reporter
        self._workers = max(request.parallel, 1) + _SPARE_WORKERS
        self._server = grpc.server(
            concurrent.futures.ThreadPoolExecutor(self._workers + _SPARE_WORKERS),
            options=CHANNEL_OPTIONS,
        )
        self._address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._program, self._no_program = self._start_program()
        try:
            base = store.load()
        except BaseException:
            self._end_program()
            raise
        plugins = Plugins(request, self._address, self._say_of_plugin)
        self._registry = Registry(request, plugins, self._address)
        self._session = Session(
            request=request,
            base=base,
            registry=self._registry,
            keeper=Keeper(base, None if request.preview else store.save),
            reporter=reporter,
        )
        self._targets = Targets(request)
        self._executor = self._new_executor(continue_on_error=request.continue_on_error)
        drafts = Drafts(self._session)
        planner = Planner(self._session, drafts, self._targets)
        self._registrar = Registrar(self._session, drafts, planner, self._executor)
        self._monitor = Monitor(self._session, self._registrar, self._executor)

    def run(self) -> Outcome:
        config = {k: "[secret]" if v.secret else v.value for k, v in self._request.config.items()}
        self._reporter.emit(Prelude(config))
        try:
            self._carry_out()
        except ProgramError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 (told to the user when all has been ended)
            self._executor.break_off(error)
        self._end()
        if self._executor.broken is not None:
            raise self._executor.broken
        return self._outcome()

    # -- the course of a deployment ------------------------------------------------------

    def _carry_out(self) -> None:
        request = self._request
        if self._no_program is not None:
            raise self._no_program
        self._registry.warm_up(self._session.base.resources)
        self._serve()
        if self._refresh_only or request.refresh:
            self._refresh()
        elif self._session.base.pending_operations and not request.preview:
            self._warn_of_pending_operations()
        if not self._refresh_only and not self._executor.cancelled.is_set():
            if self._program is not None:
                self._run_program(self._program)
            if not self._executor.cancelled.is_set():
                self._delete()
        self._executor.wait_until_idle()
        self._registrar.finish_stack(ok=not self._has_failed())

    def _start_program(self) -> tuple[Program | None, ProgramError | None]:
        """Start it before anything else: it takes the longest to load."""
        if self._request.operation != "up":
            return None, None
        try:
            return Program(self._request, self._say_of_program), None
        except ProgramError as error:
            return None, error

    def _end_program(self) -> None:
        if self._program is not None:
            self._program.end()

    def _serve(self) -> None:
        resource_pb2_grpc.add_ResourceMonitorServicer_to_server(self._monitor, self._server)
        engine = Engine(self._session, self._executor.cancelled.is_set)
        engine_pb2_grpc.add_EngineServicer_to_server(engine, self._server)
        self._server.start()

    def _refresh(self) -> None:
        if self._program is None and self._has_unknown_targets():
            self._executor.cancel()
            return
        # One resource that cannot be read does not keep the others from being refreshed.
        executor = self._new_executor(continue_on_error=True)
        refresh(self._session, self._targets, executor)
        if executor.errored:
            self._executor.errored = True
            self._executor.cancel()

    def _run_program(self, program: Program) -> None:
        over = threading.Event()
        codes: list[int] = []

        def wait() -> None:
            codes.append(program.wait())
            over.set()

        waiter = threading.Thread(target=wait, daemon=True)
        self._executor.on_cancel(over.set)
        self._monitor.when_finished(over.set)
        program.run(self._address, self._workers)
        waiter.start()
        over.wait()
        if self._executor.cancelled.is_set():
            return
        if not self._monitor.finished.is_set() or codes:
            waiter.join()
            self._judge(codes[0])

    def _judge(self, code: int) -> None:
        if self._executor.cancelled.is_set():
            return
        if code == 0:
            if self._session.stack_urn not in self._session.progress.registered:
                # Going on would delete all that the stack has.
                self._fail("the program ended before it registered anything; nothing was changed")
                self._executor.cancel()
            return
        self._failed = True
        if code != MESSAGE_SHOWN:
            self._reporter.say(
                "error",
                f"an unhandled error occurred: program exited with non-zero exit code: {code}",
            )
        self._told = True
        self._executor.cancel()

    def _delete(self) -> None:
        if self._has_unknown_targets():
            return
        try:
            steps = plan_deletes(self._session, self._targets)
        except TargetError:
            return
        run_deletes(self._session, self._executor, steps)

    def _has_unknown_targets(self) -> bool:
        known = self._session.olds.keys() | self._session.progress.registered
        missing = self._targets.missing(known)
        for urn in missing:
            self._fail(
                f"Target '{urn}' could not be found in the stack. Did you forget to escape $ in your"
                " shell?"
            )
        return bool(missing)

    # -- its end -------------------------------------------------------------------------

    def _end(self) -> None:
        self._executor.cancel()
        self._end_program()
        self._server.stop(None)
        self._registry.close()
        self._flush()
        kind = "preview" if self._request.preview else "update"
        # A plan that was given up has said why; one with errors that went on says so at its end.
        given_up = self._failed or self._registrar.refused
        if self._executor.errored or (self._session.saw_error and not given_up):
            self._reporter.say("error", f"{kind} failed")
        elif self._cancel.requested.is_set():
            self._reporter.say("error", f"{kind} canceled")
        self._reporter.emit(
            Summary(
                changes=dict(self._reporter.changes),
                result="failed" if self._has_failed() else "succeeded",
                duration_seconds=round(time.monotonic() - self._began),
                is_preview=self._request.preview,
            )
        )
        self._reporter.emit(Cancel())

    def _flush(self) -> None:
        try:
            self._session.keeper.flush()
        except Exception as error:  # noqa: BLE001 (told to the user when all has been ended)
            self._executor.break_off(error)

    def _outcome(self) -> Outcome:
        return Outcome(
            ok=not self._has_failed(),
            changes=dict(self._reporter.changes),
            cancelled=self._cancel.requested.is_set(),
        )

    def _has_failed(self) -> bool:
        return (
            self._failed
            or self._executor.errored
            or self._executor.broken is not None
            or self._registrar.refused
            or self._session.saw_error
            or self._cancel.requested.is_set()
        )

    # -- below ---------------------------------------------------------------------------

    def _new_executor(self, *, continue_on_error: bool) -> Executor:
        executor = Executor(
            self._session, parallel=self._request.parallel, continue_on_error=continue_on_error
        )

        def stop() -> None:
            if self._cancel.terminated.is_set():
                executor.terminate()
                self._registry.close()
            elif self._cancel.requested.is_set():
                executor.cancel()
                self._registry.cancel()

        self._cancel.listen(stop)
        return executor

    def _fail(self, message: str) -> None:
        self._failed = True
        self._reporter.say("error", message)

    def _warn_of_pending_operations(self) -> None:
        operations = self._session.base.pending_operations
        lines = [f"  * {op.resource.urn}, interrupted while {op.type}" for op in operations]
        self._reporter.say(
            "warning",
            f"Attempting to deploy or update resources with {len(lines)} pending operations from"
            " previous deployment.\n" + "\n".join(lines) + "\nThese resources are in an unknown"
            " state because the Pulumi CLI was interrupted while waiting for changes to these"
            " resources to complete. You should confirm whether or not the operations listed"
            " completed successfully by checking the state of the appropriate provider. For"
            " example, if you are using AWS, you can confirm using the AWS Console.\n\nOnce you"
            " have confirmed the status of the interrupted operations, you can repair your stack"
            " using `pulumi refresh` which will refresh the state from the provider you are using"
            " and clear the pending operations if there are any.\n\nNote that pending CREATE"
            " operations are cleared by `pulumi refresh --clear-pending-creates` alone.",
        )

    def _say_of_program(self, line: str) -> None:
        if not self._executor.cancelled.is_set():
            self._reporter.say("info", line, self._session.stack_urn)

    def _say_of_plugin(self, line: str) -> None:
        self._reporter.say("info#err", line)
