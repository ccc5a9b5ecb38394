"""The core of the engine with a provider in memory: no processes, no gRPC.

A program is a list of `Thing`s. The provider keeps objects in a dictionary and writes down every
call; a crash is a save that never returns.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from engine.answers import (
    Checked,
    Comparison,
    Failure,
    InitFailedError,
    Live,
    ProviderError,
)
from engine.deletes import TargetError, plan_deletes, run_deletes
from engine.diff import Changes, Diff
from engine.drafts import Drafts
from engine.events import Event, ResourceOutputs
from engine.executor import CancelledError, Executor
from engine.goal import Goal
from engine.keeper import Keeper
from engine.planner import Planner
from engine.project import Project
from engine.protocol import alias_pb2
from engine.provider import ResourceProvider
from engine.providers import Handle, Registry
from engine.refresh import refresh
from engine.registrar import Registrar
from engine.reporter import Reporter
from engine.request import Request
from engine.session import Session
from engine.state import STACK_TYPE, ResourceState, Snapshot
from engine.targets import Targets
from engine.values import Unknown, Values, contains_unknown

TYPE = "mem:index:Thing"


def alias(urn: str = "", **spec: object) -> alias_pb2.Alias:
    """What a resource was called before: its URN, or the parts that were different."""
    if urn:
        return alias_pb2.Alias(urn=urn)
    return alias_pb2.Alias(spec=alias_pb2.Alias.Spec(**spec))  # type: ignore[arg-type]


class CrashError(BaseException):
    """The engine is gone, as after kill -9."""


@dataclasses.dataclass(frozen=True)
class Thing:
    """A resource of a program. `uses` names those whose id becomes the property `of`."""

    name: str
    text: str = "text"
    key: str = "key"
    uses: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    parent: str = ""
    component: bool = False
    options: Mapping[str, object] = dataclasses.field(default_factory=dict)


class Memory:
    """A provider of things: `text` changes in place, another `key` needs a new object."""

    supports_preview = False

    def __init__(self) -> None:
        self.objects: dict[str, Values] = {}
        self.calls: list[str] = []
        self.diffs: list[str] = []
        self.failing: set[str] = set()
        self.unhealthy: set[str] = set()
        self.silent: set[str] = set()
        self.timeouts: dict[str, float] = {}
        self.delete_first: set[str] = set()
        self.made = 0

    def _call(self, verb: str, name: str) -> None:
        self.calls.append(f"{verb} {name}")
        if f"{verb} {name}" in self.failing:
            raise ProviderError(f"{verb} {name} is not possible")

    def check(self, subject: ResourceState, olds: Values, news: Values, *, seed: bytes) -> Checked:
        if news.get("text") == "refused":
            return Checked(news, (Failure("text", "is refused"),))
        return Checked(news)

    def diff(self, wanted: Comparison) -> Diff:
        name = wanted.subject.name
        self.diffs.append(name)
        if name in self.silent:
            return Diff(Changes.UNKNOWN)
        before, after = wanted.old_outputs, wanted.news
        changed = tuple(k for k in ("text", "key", "of") if before.get(k) != after.get(k))
        if not changed:
            return Diff(Changes.NONE)
        return Diff(
            Changes.SOME,
            replace_keys=tuple(k for k in changed if k == "key"),
            changed_keys=changed,
            delete_before_replace=name in self.delete_first,
        )

    def create(
        self, subject: ResourceState, inputs: Values, *, timeout: float, preview: bool
    ) -> tuple[str, Values]:
        self._call("create", subject.name)
        self.made += 1
        id_ = f"{subject.name}@{self.made}"
        self.objects[id_] = dict(inputs)
        self.timeouts[f"create {subject.name}"] = timeout
        outputs = {**inputs, "size": len(str(inputs["text"]))}
        self._look_after("create", subject.name, id_, outputs)
        return id_, outputs

    def _look_after(self, verb: str, name: str, id_: str, outputs: Values) -> None:
        if f"{verb} {name}" in self.unhealthy:
            raise InitFailedError(f"{name} does not come up", id_, outputs, None, ["not ready"])

    def read(self, subject: ResourceState, id_: str, inputs: Values, outputs: Values) -> Live:
        self._call("read", subject.name)
        found = self.objects.get(id_)
        if found is None:
            return Live("", None, None)
        outputs = {**found, "size": len(str(found["text"]))}
        self._look_after("read", subject.name, id_, outputs)
        # An import has nothing of its own to compare with.
        return Live(id_, outputs, None if inputs else dict(found))

    def update(self, wanted: Comparison, *, timeout: float, preview: bool) -> Values:
        name, news = wanted.subject.name, wanted.news
        self._call("update", name)
        self.timeouts[f"update {name}"] = timeout
        self.objects[wanted.id] = dict(news)
        made = {**news, "size": len(str(news["text"]))}
        self._look_after("update", name, wanted.id, made)
        return made

    def delete(
        self, subject: ResourceState, id_: str, *, inputs: Values, outputs: Values, timeout: float
    ) -> None:
        self._call("delete", subject.name)
        self.timeouts[f"delete {subject.name}"] = timeout
        self.objects.pop(id_, None)


class MemoryRegistry(Registry):
    """Provider resources without processes; all lead to one `Memory`."""

    def __init__(self, request: Request, memory: Memory) -> None:
        super().__init__(request, None, "")  # type: ignore[arg-type]
        self._memory = memory

    def check(self, subject: ResourceState, olds: Values, news: Values) -> Checked:
        return Checked(news)

    def diff(self, subject: ResourceState, old: ResourceState, news: Values) -> Diff:
        return Diff(Changes.NONE)

    def needs_replacement(self, old: ResourceState, new: ResourceState) -> bool:
        return False

    def new_id(self) -> str:
        return "00000000-0000-4000-8000-000000000001"

    def activate(self, state: ResourceState) -> None:
        ready: concurrent.futures.Future[ResourceProvider] = concurrent.futures.Future()
        ready.set_result(self._memory)  # type: ignore[arg-type]
        self._handles[f"{state.urn}::{state.id}"] = Handle(state, ready)


PROJECT = Project("memory", pathlib.Path("/nowhere/Pulumi.yaml"), "python")


@dataclasses.dataclass
class Ended:
    """What a run left behind."""

    ok: bool
    changes: dict[str, int]
    events: list[Event]
    snapshot: Snapshot

    @property
    def steps(self) -> list[str]:
        """The steps that ended well, in their order; the stack and components left out."""
        return [
            f"{e.metadata.op} {e.metadata.state.name}"
            for e in self.events
            if isinstance(e, ResourceOutputs) and e.metadata.state.custom
        ]

    def state(self, name: str) -> ResourceState:
        return next(r for r in self.snapshot.resources if r.name == name and not r.delete)


class Stack:
    """A stack with its stored state and the world that it manages."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.stored = Snapshot()
        self.saves = 0
        self.crash_at: int | None = None

    def save(self, snapshot: Snapshot) -> None:
        self.saves += 1
        if self.crash_at is not None and self.saves >= self.crash_at:
            raise CrashError
        # What is stored must not change any more, whatever the engine does with its states.
        self.stored = dataclasses.replace(
            snapshot, resources=tuple(r.copy() for r in snapshot.resources)
        )

    def load(self) -> Snapshot:
        return dataclasses.replace(
            self.stored, resources=tuple(r.copy() for r in self.stored.resources)
        )

    def up(self, *program: Thing, **options: object) -> Ended:
        return self._run(program, "up", options)

    def preview(self, *program: Thing, **options: object) -> Ended:
        return self._run(program, "up", {"preview": True, **options})

    def destroy(self, **options: object) -> Ended:
        return self._run(None, "destroy", options)

    def refresh(self, **options: object) -> Ended:
        return self._run(None, "refresh", options)

    def _run(
        self, program: Sequence[Thing] | None, operation: str, options: Mapping[str, object]
    ) -> Ended:
        request = Request(
            project=PROJECT,
            stack="dev",
            operation=operation,  # type: ignore[arg-type]
            preview=bool(options.get("preview")),
            **{k: v for k, v in options.items() if k != "preview"},  # type: ignore[arg-type]
        )
        events: list[Event] = []
        reporter = Reporter(
            events.append, preview=request.preview, refresh_only=operation == "refresh"
        )
        base = self.load()
        session = Session(
            request=request,
            base=base,
            registry=MemoryRegistry(request, self.memory),
            keeper=Keeper(base, None if request.preview else self.save),
            reporter=reporter,
        )
        executor = Executor(session, parallel=1, continue_on_error=request.continue_on_error)
        targets = Targets(request)
        drafts = Drafts(session)
        registrar = Registrar(session, drafts, Planner(session, drafts, targets), executor)
        if operation == "refresh" or request.refresh:
            refresh(session, targets, Executor(session, parallel=1, continue_on_error=True))
        try:
            if program is not None:
                _play(program, registrar)
            if operation != "refresh":
                run_deletes(session, executor, plan_deletes(session, targets))
        except (CancelledError, TargetError):
            pass
        ok = not (executor.errored or registrar.refused or session.saw_error)
        registrar.finish_stack(ok=ok)
        session.keeper.flush()
        return Ended(ok, dict(reporter.changes), events, session.keeper.snapshot())


def _play(program: Sequence[Thing], registrar: Registrar) -> None:
    stack = registrar.register(Goal(STACK_TYPE, "memory-dev", custom=False)).state
    made: dict[str, ResourceState] = {}
    failed: set[str] = set()
    for thing in program:
        if failed.intersection((*thing.uses, *thing.after, thing.parent)):
            failed.add(thing.name)  # the SDK never gets to register it
            continue
        goal = _goal(thing, made, stack)
        registered = registrar.register(goal)
        made[thing.name] = registered.state
        if registered.result != "success":
            failed.add(thing.name)
        elif thing.component:
            registrar.outputs(registered.state.urn, {"done": thing.text})
    registrar.outputs(stack.urn, {"things": len(made)})


def _goal(thing: Thing, made: Mapping[str, ResourceState], stack: ResourceState) -> Goal:
    uses = [made[name] for name in thing.uses]
    inputs: Values = {} if thing.component else {"text": thing.text, "key": thing.key}
    if uses:
        # In a preview what is new has no id yet.
        inputs["of"] = [state.id or Unknown() for state in uses]
    urns = tuple(state.urn for state in uses)
    return Goal(
        type="mem:index:Group" if thing.component else TYPE,
        name=thing.name,
        custom=not thing.component,
        parent=made[thing.parent].urn if thing.parent else stack.urn,
        inputs=inputs,
        dependencies=(*urns, *(made[name].urn for name in thing.after)),
        property_dependencies={"of": urns} if urns else {},
        **thing.options,  # type: ignore[arg-type]
    )


def faults(snapshot: Snapshot) -> list[str]:
    """What is wrong with a state: references that lead nowhere or forward, things twice."""
    found: list[str] = []
    before: set[str] = set()
    current: set[str] = set()
    everyone = {r.urn for r in snapshot.resources}
    for state in snapshot.resources:
        needs = {state.parent, *state.dependencies, state.provider.rpartition("::")[0]}
        needs.add(state.deleted_with)
        for needed in state.property_dependencies.values():
            needs.update(needed)
        for urn in needs - {""}:
            if urn not in everyone:
                found.append(f"{state.urn} needs {urn}, which is not there")
            elif urn not in before and not state.delete:
                found.append(f"{state.urn} stands before {urn}")
        if not state.delete:
            if state.urn in current:
                found.append(f"{state.urn} is there twice")
            current.add(state.urn)
        if any(contains_unknown(v) for v in state.outputs.values()):
            found.append(f"{state.urn} has unknown outputs")
        before.add(state.urn)
    return found
