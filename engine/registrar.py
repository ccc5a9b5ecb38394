"""Carries out what the program registers: plans it, runs it, says what came of it."""

import dataclasses
import json
import threading
from collections.abc import Sequence
from typing import Literal

from engine import urn as urns
from engine.answers import ProviderError
from engine.diff import IgnoreChangesError
from engine.drafts import Drafts, PlanError
from engine.executor import CancelledError, Executor, StepFailedError
from engine.goal import Goal, GoalError
from engine.graph import needs
from engine.paths import PathError
from engine.planner import Planner, RefusedError
from engine.plugins import DYNAMIC, PluginError
from engine.providers import default_inputs, default_name
from engine.session import Session
from engine.state import PROVIDER_TYPE_PREFIX, ResourceState
from engine.step import Step
from engine.values import UNKNOWN_STRING, Values

_DISABLED = "pulumi:disable-default-providers"
_ERRORS = (
    PlanError,
    ProviderError,
    PluginError,
    IgnoreChangesError,
    PathError,
    GoalError,
    ValueError,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Registered:
    """What the program gets back. A skipped one needs something that failed."""

    state: ResourceState
    result: Literal["success", "fail", "skip"] = "success"


class _ProviderFailedError(Exception):
    """The default provider of a resource could not be made; the user has been told."""


class Registrar:
    """Serves the program's registrations, several at a time."""

    def __init__(
        self, session: Session, drafts: Drafts, planner: Planner, executor: Executor
    ) -> None:
        self._session = session
        self._drafts = drafts
        self._planner = planner
        self._executor = executor
        # Plans are as many at a time as steps: with `--parallel 1` all comes in order.
        self._planning = threading.Semaphore(max(1, session.request.parallel))
        self._lock = threading.Lock()
        self._defaults: dict[str, threading.Event] = {}
        self._steps: dict[str, Step] = {}
        self._stack_outputs: tuple[str, Values] | None = None
        self.refused = False

    # -- for the program -----------------------------------------------------------------

    def register(self, goal: Goal) -> Registered:
        """Bring a resource to what the program wants.

        Raises:
            CancelledError: the deployment is over; there is no answer.
        """
        urn = self._urn_of(goal)
        try:
            if goal.custom and not goal.is_provider:
                goal = dataclasses.replace(goal, provider=self._provider(goal, urn))
            with self._planning:
                draft = self._drafts.begin(goal)
                steps = self._planner.plan(draft)
            new = _last_new(steps).new or draft.new
            if self._needs_failed(new):
                return self._skip(new)
            return self._run(new, steps)
        except _ProviderFailedError:
            return self._skip(ResourceState(urn, goal.type, goal.custom))
        except RefusedError:
            return self._refuse(urn)
        except _ERRORS as error:
            self._session.reporter.say("error", str(error), getattr(error, "urn", "") or urn)
            return self._refuse(urn)

    def outputs(self, urn: str, outputs: Values) -> None:
        """Set the outputs of a component; the stack's are kept for the end.

        Raises:
            GoalError: no such resource was registered.
        """
        if urns.is_stack(urn):
            self._stack_outputs = (urn, outputs)
            return
        self._set_outputs(urn, outputs)

    def default_provider(self, package: str, version: str, url: str, user: str) -> str:
        """The reference of the default provider of a package; `user` is who asks for it.

        Raises:
            PlanError: the stack's configuration has disabled it, or it could not be made.
            CancelledError: it could not be made, and the deployment is over.
        """
        try:
            return self._default_provider(package, version, url, user)
        except _ProviderFailedError:
            raise PlanError(f"the provider for '{package}' could not be made", user) from None

    def _default_provider(self, package: str, version: str, url: str, user: str) -> str:
        self._refuse_disabled(package, user)
        name = default_name(version, url)
        key = f"{package}::{name}"
        with self._lock:
            made = self._defaults.get(key)
            first = made is None
            if made is None:
                made = self._defaults[key] = threading.Event()
        if not first:
            made.wait()
        else:
            try:
                self._make_default(package, name, version, url)
            finally:
                made.set()
        urn = self._default_urn(package, name)
        state = self._session.progress.news.get(urn)
        if state is None or urn in self._session.progress.failed:
            if self._executor.cancelled.is_set():
                raise CancelledError
            raise _ProviderFailedError
        return f"{urn}::{state.id or UNKNOWN_STRING}"

    # -- at the end ----------------------------------------------------------------------

    def finish_stack(self, *, ok: bool) -> None:
        """Set the outputs of the stack, if the program came so far; on a failure keep old ones."""
        if self._stack_outputs is None:
            return
        urn, outputs = self._stack_outputs
        state = self._session.progress.news.get(urn)
        if state is None or urn not in self._steps:
            return
        self._set_outputs(urn, outputs if ok else {**state.outputs, **outputs})

    # -- below ---------------------------------------------------------------------------

    def _urn_of(self, goal: Goal) -> str:
        request = self._session.request
        return urns.make(request.stack, request.project.name, goal.parent, goal.type, goal.name)

    def _provider(self, goal: Goal, urn: str) -> str:
        if goal.provider:
            return goal.provider
        parent = self._session.progress.news.get(goal.parent)
        if parent is not None and parent.provider and parent.type.split(":")[0] == goal.package:
            return parent.provider
        return self._default_provider(goal.package, goal.version, goal.plugin_download_url, urn)

    def _refuse_disabled(self, package: str, user: str) -> None:
        setting = self._session.request.config.get(_DISABLED)
        if setting is None:
            return
        disabled = json.loads(setting.value)
        if "*" in disabled or package in disabled:
            raise PlanError(
                f"Default provider for '{package}' disabled. '{user}' must use an explicit provider.",
                user,
            )

    def _default_urn(self, package: str, name: str) -> str:
        request = self._session.request
        return urns.make(
            request.stack, request.project.name, "", PROVIDER_TYPE_PREFIX + package, name
        )

    def _make_default(self, package: str, name: str, version: str, url: str) -> None:
        inputs = default_inputs(
            self._session.request, package, version, url, every_key=package == DYNAMIC
        )
        goal = Goal(type=PROVIDER_TYPE_PREFIX + package, name=name, custom=True, inputs=inputs)
        self.register(goal)

    def _run(self, state: ResourceState, steps: Sequence[Step]) -> Registered:
        with self._lock:
            self._steps[state.urn] = _last_new(steps)
        try:
            self._executor.run_chain(steps)
        except StepFailedError:
            if self._executor.cancelled.is_set():
                raise CancelledError from None
            return Registered(state, "fail")
        return Registered(state)

    def _needs_failed(self, state: ResourceState) -> bool:
        progress = self._session.progress
        with progress.lock:
            return bool(progress.failed) and not progress.failed.isdisjoint(needs(state))

    def _skip(self, state: ResourceState) -> Registered:
        with self._session.progress.lock:
            self._session.progress.failed.add(state.urn)
        return Registered(state, "skip")

    def _refuse(self, urn: str) -> Registered:
        self.refused = True
        with self._session.progress.lock:
            self._session.progress.failed.add(urn)
        if not self._session.request.continue_on_error:
            self._executor.cancel()
            raise CancelledError
        state = self._session.progress.news.get(urn) or ResourceState(
            urn, urns.type_of(urn), custom=False
        )
        return Registered(state, "fail")

    def _set_outputs(self, urn: str, outputs: Values) -> None:
        state = self._session.progress.news.get(urn)
        step = self._steps.get(urn)
        if state is None or step is None:
            raise GoalError(f"outputs for '{urn}' were registered before the resource itself")
        changed = state.outputs != outputs
        if changed:
            state.outputs = outputs  # equal ones stay, and their secrets keep their ciphertext
        self._session.reporter.outputs(step.metadata())
        if changed and not self._session.preview:
            self._session.keeper.change(state)


def _last_new(steps: Sequence[Step]) -> Step:
    return next((s for s in reversed(steps) if s.new is not None), steps[-1])
