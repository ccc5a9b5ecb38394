"""A small world around the lease machine, of which every reachable state is visited.

One host, some GPUs and partitions, pods of two tenants, a kubelet with its device plugin, a fabric
manager, and one or two controllers that run the real `decide`. Everything may happen in any order:
answers come late, twice or not at all, controllers lose their memory at any moment, work that a dead
one had begun is done afterwards, deadlines pass, hardware refuses, tenants change firmware.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

from gpuclusters.device_plugin.decide import CLEARABLE
from gpuclusters.fabric.table import Partition
from gpuclusters.lease import decide as lease_decisions
from gpuclusters.lease import holding as lease_holding
from gpuclusters.lease.board import (
    ActivatePartition,
    AdmitPod,
    Attempt,
    Board,
    BoardSeen,
    ClearMemory,
    DeactivatePartition,
    DeletePod,
    Effect,
    Failed,
    FindPod,
    Lease,
    NodeLost,
    Orders,
    Outcome,
    Pod,
    PodState,
    ReadBoard,
    ReadFirmware,
    Reading,
    ReadKnobs,
    Refused,
    Reset,
    Succeeded,
    Unfence,
    Withhold,
)
from gpuclusters.lease.firmware import Golden
from gpuclusters.lease.model import (
    EDGES,
    HELD,
    ConditionType,
    Holder,
    Phase,
    QuarantineReason,
    RecyclePolicy,
)
from gpuclusters.lease.plan import Change, Plan

HOST = "h"
NOW = 1000.0
"""Long after everything: pauses are over. Deadlines have passed only where the world says so."""

USED, WAS_RESET, CLEARED, VERIFIED = range(4)
"""What was really done to a GPU since its last tenant: the ghost that the machine cannot see."""


class BrokenError(AssertionError):
    """An invariant does not hold."""


class Mishaps(NamedTuple):
    """How often things may go wrong."""

    faults: int = 0
    """Hardware refuses, or a tenant changes firmware."""
    rechecks: int = 0
    crashes: int = 0
    losses: int = 0
    """An answer gets lost."""
    repeats: int = 0
    """An answer comes a second time."""
    expiries: int = 0
    """A deadline passes."""
    disputes: int = 0
    """The kubelet gives a GPU to another pod than its lease's."""
    layouts: int = 0
    """A stack makes the declared partitions active."""
    absences: int = 0
    """The node is lost; it comes back by itself at some time."""

    def less(self, which: str) -> Mishaps:
        return self._replace(**{which: getattr(self, which) - 1})


@dataclass(frozen=True)
class Setting:
    """Which world."""

    partitions: dict[int, tuple[int, ...]]
    pods: tuple[int, ...]
    """Size of each pod's request."""
    may: Mishaps = field(default_factory=Mishaps)
    controllers: int = 1
    keep_active: bool = False
    policy: RecyclePolicy = RecyclePolicy.FULL
    forced: bool = False
    """Whether pods may vanish from the API while they run."""
    lag: bool = False
    """Whether a controller sees late what others wrote. What it wrote itself it knows."""
    start: Phase = Phase.FREE
    depth: int = 0
    """How many steps from the start are looked at; 0: all."""

    @property
    def modules(self) -> tuple[int, ...]:
        return tuple(sorted({m for modules in self.partitions.values() for m in modules}))

    def orders(self) -> Orders:
        offered = tuple(Partition(n, m) for n, m in self.partitions.items())
        golden = Golden(versions={"FW_GPU": ("1",)})
        return Orders(HOST, self.partitions, offered, self.keep_active, self.policy, golden)


class Inventory(dict[str, str]):
    """An answer that can be part of a state."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


class Vm(NamedTuple):
    """What the kubelet made of a pod."""

    state: str  # "", allocated, running
    gpus: tuple[int, ...] = ()


class Message(NamedTuple):
    owner: int  # controller, -1 when it is dead
    effect: Effect
    answer: Outcome | None = None


class _Knows(NamedTuple):
    leases: tuple[Lease, ...]
    fresh: bool
    pods: tuple[Pod, ...]
    attempts: frozenset[tuple[Effect, Any]]
    reading: Reading | None
    pending: tuple[Change, ...] = ()
    away: str = ""  # or "short", or "long"
    heard: bool = True


class Controller(_Knows):
    """One controller; its hash is asked for again and again, and would take long each time."""

    _hash: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash = super().__hash__()
            return self._hash


class State(NamedTuple):
    leases: tuple[Lease, ...]
    pods: tuple[Pod, ...]
    vms: tuple[Vm, ...]
    active: frozenset[int]
    withheld: frozenset[int]
    levels: tuple[int, ...]
    tampered: frozenset[int]
    messages: frozenset[Message]
    controllers: tuple[Controller, ...]
    may: Mishaps
    """What may still go wrong."""
    lost: bool = False
    """Whether the node is not Ready: its machine may answer all the same, or not."""


Step = tuple[str, State]


def uid(pod: int) -> str:
    return f"p{pod}"


@dataclass
class Explored:
    """What was visited."""

    states: int = 0
    transitions: int = 0
    stored: set[tuple[Phase, Phase]] = field(default_factory=set)


class World:
    """All that can happen next in a state."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.orders = setting.orders()
        self.modules = setting.modules
        self.at = {module: place for place, module in enumerate(self.modules)}
        self.calm = setting.controllers == 1 and setting.may.crashes == setting.may.losses == 0
        self._holders = {
            (place, partition): Holder(
                tenant=f"t{place}", namespace="n", pod=uid(place), pod_uid=uid(place),
                container="", partition=partition, gpus=modules,
            )
            for place in range(len(setting.pods))
            for partition, modules in setting.partitions.items()
        }  # fmt: skip
        # What is asked again and again.
        self.decided, self.sees, self.learns = map(cache, (self._decided, self._sees, self._learns))
        self.explored = Explored()

    def first(self) -> State:
        shown = frozenset(ConditionType) if self.setting.start is Phase.FREE else frozenset()
        leases = tuple(Lease(m, self.setting.start, 1, shown=shown) for m in self.modules)
        level = VERIFIED if self.setting.start is Phase.FREE else USED
        pods = tuple(Pod(uid(n), PodState.WAITING) for n in range(len(self.setting.pods)))
        controller = Controller(leases, True, pods, frozenset(), None)
        return State(
            leases,
            pods,
            tuple(Vm("") for _ in pods),
            frozenset(),
            frozenset(),
            tuple(level for _ in leases),
            frozenset(),
            frozenset(),
            (controller,) * self.setting.controllers,
            self.setting.may,
        )

    def steps(self, state: State) -> Iterator[Step]:
        """Everything that may happen next."""
        for name, after in self._steps(state):
            yield name, after if self.setting.lag else self._seen(after)

    def _seen(self, state: State) -> State:
        """Without lag every controller sees at once what others wrote."""
        pods = tuple(pod for pod in state.pods if pod.state is not PodState.GONE)
        if all(c.fresh and c.pods == pods for c in state.controllers):
            return state
        return state._replace(
            controllers=tuple(
                self.sees(one, () if one.fresh else state.leases, pods) for one in state.controllers
            )
        )

    def _sees(self, one: Controller, news: tuple[Lease, ...], pods: tuple[Pod, ...]) -> Controller:
        """The controller when it knows these leases, if they are news to it, and these pods."""
        board = self.board(one)
        seen = tuple(board.with_pod(pod).pods[pod.uid] for pod in pods)
        gone = tuple(p for p in one.pods if p.state is PodState.GONE)
        one = self._reads(one, news) if news else one
        return one._replace(pods=tuple(sorted((*seen, *gone), key=lambda p: p.uid)))

    def _reads(self, one: Controller, leases: tuple[Lease, ...]) -> Controller:
        board = self.board(one)
        for lease in leases:
            board = board.with_lease(lease)
        return one._replace(leases=leases, fresh=True, attempts=frozenset(board.attempts.items()))

    def _steps(self, state: State) -> Iterator[Step]:
        for number in range(len(state.controllers)):
            yield from self._controller(state, number)
        for message in state.messages:
            yield from self._message(state, message)
        for number in range(len(state.pods)):
            yield from self._pod(state, number)
        yield from self._outside(state)

    # Controllers

    def board(self, controller: Controller, expired: int | None = None) -> Board:
        leases = {
            x.module: x if x.module != expired else replace(x, deadline=0.0)
            for x in controller.leases
        }
        pods = {pod.uid: pod for pod in controller.pods}
        away = NodeLost(NOW if controller.away == "short" else 0.0, "") if controller.away else None
        attempts = dict(controller.attempts)
        return Board(
            self.orders, leases, pods, attempts, controller.reading, away, controller.heard
        )

    def plan(self, controller: Controller, expired: int | None = None) -> Plan:
        return self.decided(controller._replace(fresh=True, pending=()), expired)

    def _decided(self, controller: Controller, expired: int | None) -> Plan:
        return lease_decisions.decide(self.board(controller, expired), NOW)

    def _controller(self, state: State, number: int) -> Iterator[Step]:
        me = state.controllers[number]
        if not me.fresh:
            fresh = self._reads(me, state.leases)._replace(pending=())
            yield "refresh leases", self._put(state, number, fresh)
        if me.away != "long" and state.lost:
            away = "long" if me.away else "short"
            yield (
                f"sees the node away for a {away} time",
                self._put(state, number, me._replace(away=away)),
            )
        elif me.away and not state.lost:
            board = self.board(me).with_away(None)
            back = me._replace(away="", reading=board.reading, heard=board.heard)
            yield "sees the node again", self._put(state, number, back)
        seen = {pod.uid: pod for pod in me.pods}
        if self.setting.lag and any(
            seen.get(pod.uid) != pod for pod in state.pods if pod.state is not PodState.GONE
        ):
            # The watch brings what is; that a pod is gone it says by silence.
            there = tuple(p for p in state.pods if p.state is not PodState.GONE)
            yield "refresh pods", self._put(state, number, me._replace(pods=there))
        elif self.setting.lag and any(
            p.state is PodState.GONE and p.uid in seen for p in state.pods
        ):
            rest = tuple(
                p for p in me.pods if state.pods[int(p.uid[1:])].state is not PodState.GONE
            )
            if rest != me.pods:
                yield "pod vanishes from view", self._put(state, number, me._replace(pods=rest))
        if state.may.crashes:
            yield "crash", self._crash(state, number)
        if me.pending:
            yield from self._store(state, number, me.pending[0], me.pending[1:])
            return
        plan = self.plan(me)
        for change in plan.changes[:1]:
            yield from self._store(state, number, change)
        if not plan.changes and plan.effects:
            yield "ask", self._ask(state, number, plan.effects)
        if state.may.expiries:
            for module in self.modules:
                late = self.plan(me, module)
                for change in late.changes:
                    if change not in plan.changes and change.before.module == module:
                        change = replace(change, before=replace(change.before, deadline=None))
                        yield from self._store(self._spend(state, "expiries"), number, change)
                deletes = [e for e in late.effects if isinstance(e, DeletePod)]
                if deletes and not late.changes:
                    yield (
                        "ask to delete",
                        self._ask(self._spend(state, "expiries"), number, deletes),
                    )
        if not plan.changes and self.board(me).serves:
            yield from self._grants(state, number)

    def _grants(self, state: State, number: int) -> Iterator[Step]:
        me = state.controllers[number]
        board = self.board(me)
        for place, size in enumerate(self.setting.pods):
            for partition, modules in self.setting.partitions.items():
                if len(modules) != size:
                    continue
                holder = self._holders[place, partition]
                changes = lease_holding.reserve(board, holder, NOW)
                if changes:
                    pending = me._replace(pending=changes)
                    yield f"grant {place}", self._put(state, number, pending)

    def _ask(self, state: State, number: int, effects: Any) -> State:
        me = state.controllers[number]
        attempts = dict(me.attempts)
        for effect in effects:
            attempts[effect] = Attempt(in_flight=True)
        sent = {Message(number, effect) for effect in effects}
        # An earlier, repeated answer to the same question counts as the answer to this one.
        old = {m for m in state.messages if m.owner == number and m.effect in effects}
        state = state._replace(
            messages=(state.messages - old) | sent | {m for m in old if m.answer}
        )
        state = self._put(state, number, me._replace(attempts=frozenset(attempts.items())))
        for message in sent:
            marks = isinstance(message.effect, Withhold | Unfence) and not self.setting.may.layouts
            if isinstance(message.effect, FindPod) or marks:
                # What it says only goes forward; lateness of it is lateness of the view. And marks
                # are looked at by nobody but a stack.
                state = state._replace(messages=state.messages - {message})
                ((answer, state),) = self._execute(state, message.effect)
                state = self._deliver(state, number, answer)
        return state

    def _store(
        self, state: State, number: int, change: Change, pending: tuple[Change, ...] = ()
    ) -> Iterator[Step]:
        me = state.controllers[number]
        place = self.at[change.before.module]
        if state.leases[place] != change.before:
            yield "conflict", self._put(state, number, me._replace(fresh=False, pending=()))
            return
        after = replace(change.after, deadline=None, message="")
        closes = after.phase is Phase.QUARANTINED and change.before.phase is not Phase.QUARANTINED
        silence = me.away and not after.disputed and not self.setting.may.faults
        _require(not (closes and silence), f"GPU {after.module} is closed because its node is lost")
        self._check_write(state, state.leases[place], after)
        self.explored.stored.add((change.before.phase, after.phase))
        leases = _with(state.leases, place, after)
        board = self.board(me).with_lease(after)
        mine = me._replace(
            leases=_with(me.leases, place, after),
            attempts=frozenset(board.attempts.items()),
            pending=pending,
        )
        controllers = tuple(
            mine if n == number else c._replace(fresh=False)
            for n, c in enumerate(state.controllers)
        )
        yield f"store {after.phase}", state._replace(leases=leases, controllers=controllers)

    def _crash(self, state: State, number: int) -> State:
        """Memory is lost; what was under way may still be done, by whoever does it."""
        messages = set()
        for message in state.messages:
            if message.owner != number:
                messages.add(message)
            elif message.answer is None and not isinstance(message.effect, _READS):
                messages.add(message._replace(owner=-1))
        there = tuple(p for p in state.pods if p.state is not PodState.GONE)
        fresh = Controller(state.leases, True, there, frozenset(), None)
        state = state._replace(messages=frozenset(messages))
        return self._spend(self._put(state, number, fresh), "crashes")

    def _put(self, state: State, number: int, controller: Controller) -> State:
        return state._replace(controllers=_with(state.controllers, number, controller))

    def _spend(self, state: State, which: str) -> State:
        return state._replace(may=state.may.less(which))

    # Messages

    def _message(self, state: State, message: Message) -> Iterator[Step]:
        rest = state._replace(messages=state.messages - {message})
        if message.answer is not None:
            yield "answer", self._deliver(rest, message.owner, message.answer)
            if state.lost and not isinstance(message.effect, FindPod | AdmitPod | DeletePod):
                silent = Failed(message.effect, "not reached")
                yield "answer not heard", self._deliver(rest, message.owner, silent)
            if state.may.repeats:
                again = self._deliver(state, message.owner, message.answer)
                yield "answer, to be repeated", self._spend(again, "repeats")
            return
        if state.lost and not isinstance(message.effect, FindPod | AdmitPod | DeletePod):
            silent = Failed(message.effect, "not reached")
            gone = rest if message.owner < 0 else self._deliver(rest, message.owner, silent)
            yield "nobody answers", gone
        for outcome, after in self._execute(rest, message.effect):
            if message.owner < 0:
                yield "done after its controller died", after
                continue
            if not isinstance(message.effect, _READS):
                # That it is done and not yet known is what a lost answer and a death make of it.
                yield "done and answered", self._deliver(after, message.owner, outcome)
            else:
                answered = message._replace(answer=outcome)
                yield "done", after._replace(messages=after.messages | {answered})
            if state.may.losses:
                failed = Failed(message.effect, "lost")
                yield (
                    "answer lost",
                    self._spend(self._deliver(after, message.owner, failed), "losses"),
                )
        if message.owner < 0:
            yield "died with its controller", rest
        elif state.may.losses:
            failed = Failed(message.effect, "lost")
            yield "question lost", self._spend(self._deliver(rest, message.owner, failed), "losses")

    def _deliver(self, state: State, number: int, outcome: Outcome) -> State:
        return self._put(state, number, self.learns(state.controllers[number], outcome))

    def _learns(self, me: Controller, outcome: Outcome) -> Controller:
        board = self.board(me).learnt(outcome, 0.0)
        attempts = {e: a for e, a in board.attempts.items() if a.in_flight or a.outcome}
        pods = tuple(board.pods[key] for key in sorted(board.pods))
        return me._replace(
            attempts=frozenset(attempts.items()),
            reading=board.reading,
            pods=pods,
            heard=board.heard,
        )

    def _execute(self, state: State, effect: Effect) -> Iterator[tuple[Outcome, State]]:
        match effect:
            case ReadBoard():
                users = frozenset(m for vm in state.vms if vm.state == "running" for m in vm.gpus)
                offered = frozenset(self.setting.partitions)
                seen = BoardSeen(offered, state.active, users, state.withheld)
                yield Succeeded(effect, seen), state
            case Withhold((module, _, _)):
                yield Succeeded(effect), state._replace(withheld=state.withheld | {module})
            case Unfence(modules):
                yield Succeeded(effect), state._replace(withheld=state.withheld - modules)
            case DeactivatePartition(partition):
                modules = frozenset(self.setting.partitions[partition])
                self._check_unused(state, tuple(modules), partition)
                marked = state._replace(withheld=state.withheld | modules)
                yield Succeeded(effect), marked._replace(active=state.active - {partition})
            case ActivatePartition(partition, entries):
                if self._overlaps(state, partition):
                    yield Failed(effect, "in use"), state
                    return
                after = state._replace(active=state.active | {partition})
                freed = state.withheld.difference(self.setting.partitions[partition])
                yield Succeeded(effect), after._replace(withheld=freed)
                if self.setting.may.layouts:
                    yield Failed(effect, "the mark could not be taken away"), after
                if state.may.faults and entries:
                    refused = Refused(effect, "NVLink", QuarantineReason.NVLINK_ERROR)
                    yield refused, self._spend(state, "faults")
            case Reset(module, cycle):
                self._check_unused(state, (module,))
                self._check_down(state, module, cycle)
                yield Succeeded(effect), self._level(state, module, WAS_RESET, at_least=USED)
                if state.may.faults:
                    yield Refused(effect, "not supported"), self._spend(state, "faults")
            case ClearMemory(module, cycle):
                self._check_unused(state, (module,))
                self._check_down(state, module, cycle)
                yield Succeeded(effect), self._level(state, module, CLEARED, at_least=WAS_RESET)
                if state.may.faults:
                    yield Refused(effect, "not cleared"), self._spend(state, "faults")
            case ReadFirmware(module):
                if module in state.tampered:
                    yield Succeeded(effect, Inventory({f"FW_GPU_{module}": "2"})), state
                else:
                    level = self._level(state, module, VERIFIED, at_least=CLEARED)
                    yield Succeeded(effect, Inventory({f"FW_GPU_{module}": "1"})), level
            case FindPod(name):
                yield Succeeded(effect, state.pods[int(name[1:])]), state
            case AdmitPod(name, _, _, lease):
                pod = state.pods[int(name[1:])]
                if pod.state is not PodState.WAITING:
                    yield Refused(effect, "it does not wait"), state
                    return
                self._check_admission(state, name)
                going = replace(pod, state=PodState.GOING, lease=lease)
                yield Succeeded(effect, going), self._pod_is(state, int(name[1:]), going)
            case DeletePod(name):
                number = int(name[1:])
                pod = state.pods[number]
                if pod.state is PodState.WAITING:
                    pod = replace(pod, state=PodState.GONE)
                elif pod.state is PodState.GOING:
                    pod = replace(pod, state=PodState.ENDING)
                yield Succeeded(effect, pod), self._pod_is(state, number, pod)
            case _:
                raise AssertionError(f"nobody asks for {effect}")

    def _level(self, state: State, module: int, level: int, *, at_least: int) -> State:
        """A GPU that runs somebody's VM stays used, whatever is done to it."""
        place = self.at[module]
        if state.leases[place].disputed:
            return state
        if any(vm.state == "running" and module in vm.gpus for vm in state.vms):
            return state
        if state.levels[place] < at_least:
            return state
        # A reset of what is verified takes nothing away from that.
        return state._replace(levels=_with(state.levels, place, max(level, state.levels[place])))

    # Pods, kubelet, device plugin

    def _pod_is(self, state: State, number: int, pod: Pod) -> State:
        return state._replace(pods=_with(state.pods, number, pod))

    def _pod(self, state: State, number: int) -> Iterator[Step]:
        pod, vm = state.pods[number], state.vms[number]
        if pod.state is PodState.WAITING:
            gone = replace(pod, state=PodState.GONE)
            yield "tenant deletes waiting pod", self._pod_is(state, number, gone)
        if pod.state is PodState.GOING:
            ending = replace(pod, state=PodState.ENDING)
            yield "tenant deletes pod", self._pod_is(state, number, ending)
            if self.setting.forced:
                gone = replace(pod, state=PodState.GONE)
                yield "pod deleted by force", self._pod_is(state, number, gone)
            if vm.state == "" and not state.lost:
                yield from self._allocate(state, number)
        if vm.state == "allocated" and pod.state is not PodState.ENDED:
            levels = list(state.levels)
            for module in vm.gpus:
                levels[self.at[module]] = USED
            running = state._replace(
                vms=_with(state.vms, number, vm._replace(state="running")), levels=tuple(levels)
            )
            self._check_isolation(running)
            yield "VM starts", running
            if state.may.faults:
                changed = running._replace(tampered=running.tampered | {vm.gpus[0]})
                yield "VM starts, firmware changed", self._spend(changed, "faults")
        if vm.state == "running" or (vm.state == "allocated" and pod.state in _ENDING):
            stopped = state._replace(vms=_with(state.vms, number, vm._replace(state="stopped")))
            if pod.state in (PodState.GOING, PodState.ENDING):
                ended = replace(pod, state=PodState.ENDED)
                stopped = self._pod_is(stopped, number, ended)
            yield "VM ends", stopped
        if vm.state in ("", "stopped") and pod.state in (PodState.ENDING, PodState.ENDED):
            gone = replace(pod, state=PodState.GONE)
            yield "pod goes", self._pod_is(state, number, gone)
        if vm.state == "stopped":
            yield (
                "plugin lets go",
                self._mark(state, number, allocated=False)._replace(
                    vms=_with(state.vms, number, Vm("done"))
                ),
            )

    def _allocate(self, state: State, number: int) -> Iterator[Step]:
        """The device plugin: exactly the leased and admitted GPUs, marked by compare and swap."""
        pod = state.pods[number]
        mine = [
            x for x in state.leases
            if x.holder is not None and x.holder.pod_uid == pod.uid and x.phase is Phase.LEASED
            and x.holder.admitted and not x.holder.allocated
            and f"{HOST}/{x.holder.partition}" == pod.lease
        ]  # fmt: skip
        if not mine or mine[0].holder is None:
            return
        gpus = mine[0].holder.gpus
        if {x.module for x in mine} == set(gpus):
            allocated = self._mark(state, number, allocated=True)
            vms = _with(state.vms, number, Vm("allocated", gpus))
            yield "kubelet allocates", allocated._replace(vms=vms)

    def _mark(self, state: State, number: int, *, allocated: bool) -> State:
        leases = tuple(
            replace(x, holder=x.holder.model_copy(update={"allocated": allocated}))
            if x.holder is not None and x.holder.pod_uid == uid(number)
            and (not allocated or x.phase is Phase.LEASED)
            else x
            for x in state.leases
        )  # fmt: skip
        return self._others_wrote(state, leases)

    def _others_wrote(self, state: State, leases: tuple[Lease, ...]) -> State:
        controllers = tuple(c._replace(fresh=False) for c in state.controllers)
        return state._replace(leases=leases, controllers=controllers)

    def _overlaps(self, state: State, partition: int) -> bool:
        modules = set(self.setting.partitions[partition])
        return any(
            q != partition and modules & set(self.setting.partitions[q]) for q in state.active
        )

    def _layout(self, state: State) -> Iterator[Step]:
        """A stack: with the lock, what is declared, inactive and not withheld is activated."""
        for partition, modules in self.setting.partitions.items():
            if partition in state.active or self._overlaps(state, partition):
                continue
            if state.withheld.isdisjoint(modules):
                self._check_layout(state, modules)
                active = state.active | {partition}
                yield "a stack activates", self._spend(state._replace(active=active), "layouts")

    def _outside(self, state: State) -> Iterator[Step]:
        if state.lost:
            yield "the node is back", state._replace(lost=False)
        elif state.may.absences:
            yield "the node is lost", self._spend(state._replace(lost=True), "absences")
        if state.may.layouts:
            yield from self._layout(state)
        for place, lease in enumerate(state.leases):
            if lease.disputed and lease.phase in CLEARABLE:
                agreed = _with(state.leases, place, replace(lease, disputed=False))
                yield "the other pod lets go", self._others_wrote(state, agreed)
            elif state.may.disputes and not lease.disputed:
                given = _with(state.leases, place, replace(lease, disputed=True))
                used = state._replace(levels=_with(state.levels, place, USED))
                spent = self._spend(self._others_wrote(used, given), "disputes")
                yield "the kubelet gives a GPU to another pod", spent
        if not state.may.rechecks:
            return
        for place, lease in enumerate(state.leases):
            if lease.phase is Phase.QUARANTINED and lease.recheck_asked == lease.recheck:
                asked = replace(lease, recheck_asked=f"{state.may.rechecks}")
                repaired = state._replace(tampered=state.tampered - {lease.module})
                written = self._others_wrote(repaired, _with(state.leases, place, asked))
                yield "operator asks for a recheck", self._spend(written, "rechecks")

    # Invariants

    def check(self, state: State) -> None:
        for place, lease in enumerate(state.leases):
            clean = lease.phase in (Phase.FREE, Phase.RESERVED, Phase.ACTIVATING) or (
                lease.phase is Phase.LEASED
                and lease.holder is not None
                and state.vms[int(lease.holder.pod_uid[1:])].state in ("", "allocated")
            )
            # The kubelet does as it likes; what is marked as such must not be given to anybody.
            clean = clean and not lease.disputed
            if lease.disputed and lease.phase not in CLEARABLE:
                self._check_dispute(state, lease.module)
            _require(
                not clean or state.levels[place] == VERIFIED,
                f"GPU {lease.module} is {lease.phase} but not verified since its last tenant",
            )
            _require(
                not clean or lease.module not in state.tampered,
                f"GPU {lease.module} is {lease.phase} with changed firmware",
            )

    def _check_dispute(self, state: State, module: int) -> None:
        """A controller that sees that a GPU is with another pod does something, at once."""
        for me in state.controllers:
            plan = self.plan(me)
            busy = me.pending or not me.fresh or state.messages or plan.changes or plan.effects
            _require(bool(busy), f"GPU {module} is with another pod and nothing is done about it")

    def _check_isolation(self, state: State) -> None:
        held: dict[int, int] = {}
        for number, vm in enumerate(state.vms):
            if vm.state in ("allocated", "running"):
                for module in vm.gpus:
                    _require(module not in held, f"GPU {module} is in two VMs")
                    held[module] = number
        for partition in state.active:
            users = {held[m] for m in self.setting.partitions[partition] if m in held}
            _require(len(users) <= 1, f"partition {partition} connects two tenants")
        for number, vm in enumerate(state.vms):
            if vm.state == "running":
                lease = state.pods[number].lease
                active = {f"{HOST}/{p}" for p in state.active}
                _require(
                    not self.calm or lease in active,
                    f"pod {number} runs while its partition is not active",
                )

    def _check_unused(self, state: State, modules: tuple[int, ...], partition: int = -1) -> None:
        """With one controller that never dies nothing is done to a GPU that somebody uses."""
        if not self.calm or (partition >= 0 and partition not in state.active):
            return
        for vm in state.vms:
            used = vm.state == "running" and set(vm.gpus) & set(modules)
            _require(not used, f"GPUs {modules} of a running VM are touched")

    def _check_down(self, state: State, module: int, cycle: int) -> None:
        """A GPU that is reset or cleared has no links, and nobody is about to give it any."""
        lease = state.leases[self.at[module]]
        now = lease.phase in (Phase.RESETTING, Phase.SCRUBBING) and lease.cycle == cycle
        if not self.setting.may.layouts or not self.calm or not now:
            return  # what was asked for before a deadline passed may be done long afterwards
        up = [q for q in state.active if module in self.setting.partitions[q]]
        _require(not up, f"GPU {module} is reset while partition {up} is active")
        _require(module in state.withheld, f"GPU {module} is reset and a stack may activate it")

    def _check_layout(self, state: State, modules: tuple[int, ...]) -> None:
        if not self.calm:
            return
        for module in modules:
            lease = state.leases[self.at[module]]
            _require(
                lease.phase not in (Phase.SCRUBBING, Phase.VERIFYING),
                f"a stack activates a partition of GPU {module} in {lease.phase}",
            )
            closed = lease.phase is Phase.QUARANTINED and any(
                Withhold(lease.entry) == effect and attempt.outcome
                for effect, attempt in state.controllers[0].attempts
            )
            _require(not closed, f"a stack activates a partition of the quarantined GPU {module}")

    def _check_admission(self, state: State, name: str) -> None:
        mine = [x for x in state.leases if x.holder is not None and x.holder.pod_uid == name]
        # A gate may be opening while the GPUs are taken back; they are then held until the pod is over.
        phases = {Phase.LEASED, Phase.RELEASING} if self.setting.may.disputes else {Phase.LEASED}
        leased = [x for x in mine if x.phase in phases and x.holder and x.holder.admitted]
        whole = bool(leased) and any(
            {x.module for x in leased} >= set(x.holder.gpus) for x in leased if x.holder
        )
        _require(whole, f"{name} is let go before all its GPUs are leased")

    def _check_write(self, state: State, before: Lease, after: Lease) -> None:
        """What the API server would say: the rules of the CRD."""
        phase = after.phase
        _require(
            phase is before.phase or phase in EDGES[before.phase],
            f"GPU {before.module} goes from {before.phase} to {phase}",
        )
        held = phase in HELD
        allowed = held or phase is Phase.QUARANTINED
        _require((after.holder is not None) <= allowed, f"{phase} with a holder")
        _require(held <= (after.holder is not None), f"{phase} without a holder")
        entered = phase is Phase.RESETTING and before.phase is not Phase.RESETTING
        _require(after.cycle == before.cycle + entered, "the cycle does not count")
        _require(phase is not Phase.QUARANTINED or bool(after.reason), "no reason")
        if phase is Phase.FREE:
            proofs = {ConditionType.RESET_DONE, ConditionType.MEMORY_CLEARED}
            _require(proofs <= after.shown, "free without a proof")
        if before.phase is Phase.QUARANTINED and phase is Phase.RESETTING:
            _require(after.recheck != before.recheck, "out of quarantine unasked")
        if phase is Phase.RESETTING and before.holder is not None:
            _require(not before.holder.allocated, "reset while allocated")
        admitted = after.holder is not None and after.holder.admitted
        kept = phase is Phase.QUARANTINED and before.holder is not None and before.holder.admitted
        leased = phase in (Phase.LEASED, Phase.RELEASING)
        _require(not admitted or leased or kept, f"admitted in {phase}")
        _require(phase is not Phase.RESERVED or not after.disputed, "reserved while another has it")
        tenant = before.last_tenant if before.holder is None else before.holder.tenant
        scrubbed = phase is Phase.FREE or held
        _require(after.last_tenant == ("" if scrubbed else tenant), "its last tenant is forgotten")
        if before.holder is not None and after.holder is not None:
            _require(before.holder.pod_uid == after.holder.pod_uid, "holder replaced")

    def settled(self, state: State) -> bool:
        """Every GPU is free, in quarantine, or of a pod that lives and has it; of no other pod."""
        for lease in state.leases:
            if lease.disputed and lease.phase is not Phase.QUARANTINED:
                return False
            if lease.phase in (Phase.FREE, Phase.QUARANTINED):
                continue
            if lease.phase is Phase.LEASED and lease.holder is not None:
                number = int(lease.holder.pod_uid[1:])
                if state.vms[number].state in ("allocated", "running"):
                    continue
            return False
        return not self.setting.may.layouts or self._marks_settled(state)

    def _marks_settled(self, state: State) -> bool:
        """What is free is not withheld, what is declared and free is active; what is closed is down."""
        phases = {x.module: x.phase for x in state.leases}
        for partition, modules in self.setting.partitions.items():
            free = all(phases[m] is Phase.FREE for m in modules)
            if free and self.setting.keep_active and partition not in state.active:
                return False
            if free and not state.withheld.isdisjoint(modules):
                return False
        up = {m for q in state.active for m in self.setting.partitions[q]}
        closed = {m for m, phase in phases.items() if phase is Phase.QUARANTINED}
        return closed <= up | state.withheld


_READS = (ReadBoard, ReadFirmware, ReadKnobs, FindPod)
_ENDING = (PodState.ENDING, PodState.GONE)


class Known:
    """States that were seen. Of parts that are equal one is kept, so that a state is known by which they are:
    parts that a step did not touch are not looked at again."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[int, ...], int] = {}
        self._parts: dict[Any, Any] = {}

    def kept(self, state: State, before: State) -> State:
        """The state, of parts that are kept; `before` is one of those."""
        return State(*(a if a is b else self._part(a) for a, b in zip(state, before, strict=True)))

    def _part(self, part: Any) -> Any:
        if isinstance(part, tuple) and part and isinstance(part[0], Controller):
            part = tuple(self._parts.setdefault(one, one) for one in part)
        return self._parts.setdefault((type(part), part), part)


def explore(setting: Setting) -> Explored:
    """Visit every state that can be reached; raises `BrokenError` where an invariant does not hold.

    At the end: from each state there is a way to one in which every GPU is settled, on which nothing
    goes wrong any more. Not said where only a number of steps is looked at.
    """
    world = World(setting)
    known = Known()
    first = known.kept(world.first(), State(*[None] * len(State._fields)))  # type: ignore[arg-type]
    number = known.numbers
    number[tuple(map(id, first))] = 0
    before: list[list[int]] = [[]]
    parents: list[tuple[int, str]] = [(-1, "start")]
    settled: list[int] = [0] if world.settled(first) else []
    todo = deque([(first, 0, 0)])
    transitions = 0
    while todo:
        state, here, depth = todo.popleft()
        if setting.depth and depth >= setting.depth:
            continue
        try:
            for what, after in world.steps(state):
                transitions += 1
                after = known.kept(after, state)
                there = number.setdefault(tuple(map(id, after)), len(before))
                if there == len(before):
                    before.append([])
                    parents.append((here, what))
                    world.check(after)
                    if world.settled(after):
                        settled.append(there)
                    todo.append((after, there, depth + 1))
                if after.may is state.may and there != here:
                    before[there].append(here)
        except BrokenError as error:
            raise BrokenError(f"{error}\n{_story(parents, here)}") from None
    world.explored.states, world.explored.transitions = len(before), transitions
    if setting.depth:
        return world.explored
    reached = set(settled)
    back = deque(settled)
    while back:
        for origin in before[back.popleft()]:
            if origin not in reached:
                reached.add(origin)
                back.append(origin)
    lost = next((n for n in range(len(before)) if n not in reached), None)
    if lost is not None:
        raise BrokenError(f"a GPU is lost: it never settles\n{_story(parents, lost)}")
    return world.explored


def _story(parents: list[tuple[int, str]], at: int) -> str:
    names: list[str] = []
    while at >= 0:
        at, name = parents[at]
        names.append(name)
    return " → ".join(reversed(names))


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise BrokenError(message)


def _with(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])
