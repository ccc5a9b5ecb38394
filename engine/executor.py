"""Runs steps: a bounded number at a time, written down before and after."""

import concurrent.futures
import threading
from collections.abc import Callable, Sequence

from engine.answers import InitFailedError, ProviderError
from engine.diff import IgnoreChangesError
from engine.plugins import PluginError
from engine.session import Session
from engine.state import ResourceState
from engine.step import ProtectedError, Step, StepError
from engine.values import Secret, Value, Values

_FAILURES = (ProviderError, PluginError, StepError, IgnoreChangesError)


class CancelledError(Exception):
    """Nothing new may start: something failed, or the user wants to stop."""


class StepFailedError(Exception):
    """A step failed; the user has been told."""


class Executor:
    """Takes the steps of a deployment.

    A failed step cancels the rest unless `continue_on_error`. After `cancel` running steps end and
    nothing starts; after `terminate` running steps are given up, and stay pending in the state.
    """

    def __init__(self, session: Session, *, parallel: int, continue_on_error: bool) -> None:
        self._session = session
        self._parallel = max(1, parallel)
        self._slots = threading.Semaphore(self._parallel)
        self._continue = continue_on_error
        self._idle = threading.Condition()
        self._running = 0
        self._on_cancel: list[Callable[[], None]] = []
        self.cancelled = threading.Event()
        self.terminated = threading.Event()
        self.errored = False
        self.broken: Exception | None = None

    def break_off(self, error: Exception) -> None:
        """Stop because of something that no step can help: the state cannot be written."""
        if self.broken is None:
            self.broken = error
        self.cancel()

    def on_cancel(self, call: Callable[[], None]) -> None:
        """Call this once, when nothing new may start any more."""
        self._on_cancel.append(call)

    def cancel(self) -> None:
        if not self.cancelled.is_set():
            self.cancelled.set()
            for call in self._on_cancel:
                call()

    def terminate(self) -> None:
        self.terminated.set()
        self.cancel()
        with self._idle:
            self._idle.notify_all()

    def wait_until_idle(self) -> None:
        """Wait for running steps to end, or to be given up."""
        with self._idle:
            self._idle.wait_for(lambda: not self._running or self.terminated.is_set())

    def run_chain(self, steps: Sequence[Step]) -> None:
        """Take steps one after the other.

        Raises:
            CancelledError: the deployment was cancelled before they were all taken.
            StepFailedError: one of them failed.
        """
        with self._slots:
            for step in steps:
                self._run(step)

    def run_layer(self, steps: Sequence[Step]) -> list[Step]:
        """Take steps side by side; gives those that failed or did not start."""
        if len(steps) == 1 or self._parallel == 1:
            return [step for step in steps if not self._succeeds(step)]
        with concurrent.futures.ThreadPoolExecutor(max(1, min(self._parallel, len(steps)))) as pool:
            results = list(pool.map(self._succeeds, steps))
        return [step for step, good in zip(steps, results, strict=True) if not good]

    def _succeeds(self, step: Step) -> bool:
        try:
            self.run_chain([step])
        except (CancelledError, StepFailedError):
            return False
        return True

    def _run(self, step: Step) -> None:
        with self._idle:
            if self.cancelled.is_set():
                raise CancelledError
            self._running += 1
        try:
            self._take(step)
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def _take(self, step: Step) -> None:
        session = self._session
        session.reporter.started(step.metadata())
        if step.operation and step.state.is_real and not session.preview:
            session.keeper.begin(step.operation, step.state)
        failure = self._apply(step)
        if self.terminated.is_set():
            # The operation stays pending: nobody knows how far the provider came.
            raise CancelledError
        if step.new is not None:
            _mark_outputs(step.new)
        kept = failure is None or isinstance(failure, InitFailedError)
        if not session.preview:
            step.commit(session.keeper, ok=kept)
        if failure is None:
            session.reporter.ended(step.metadata(), step.result_op())
            return
        session.reporter.failed(step.metadata(), message_of(failure))
        self._fail(step, failure)

    def _apply(self, step: Step) -> Exception | None:
        try:
            step.apply(self._session)
        except _FAILURES as error:
            return error
        return None

    def _fail(self, step: Step, failure: Exception) -> None:
        self.errored = True
        with self._session.progress.lock:
            self._session.progress.failed.add(step.state.urn)
        if not self._continue and not isinstance(failure, ProtectedError):
            self.cancel()
        raise StepFailedError from failure


def message_of(failure: Exception) -> str:
    if isinstance(failure, InitFailedError):
        count = len(failure.reasons)
        lines = "\n".join(f"\t* {reason}" for reason in failure.reasons)
        errors = "1 error" if count == 1 else f"{count} errors"
        return f"{errors} occurred:\n{lines}\n\n"
    return str(failure)


def _mark_outputs(state: ResourceState) -> None:
    """Mark outputs as secret whose input is, or that the program wants to be."""
    if not state.custom:
        return
    marked: Values = dict(state.outputs)
    for key, value in state.inputs.items():
        if key in marked and isinstance(value, Secret):
            marked[key] = _secret(marked[key])
    for key in state.additional_secret_outputs:
        if key in marked:
            marked[key] = _secret(marked[key])
    if marked != state.outputs:
        state.outputs = marked


def _secret(value: Value) -> Value:
    return value if isinstance(value, Secret) else Secret(value)
