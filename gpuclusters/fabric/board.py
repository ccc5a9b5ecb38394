"""Bring one board's active partitions to the wanted set, without pulling links from under a VM."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.core.finding import Refused, refused
from gpuclusters.fabric import answers, decide, model
from gpuclusters.fabric.decide import active_ids
from gpuclusters.fabric.table import LayoutError, MapSource, listed, plan_layout
from gpuclusters.host.model import PciDevices

# A fabric manager with eight GPUs and four switches initialises within a minute; the second one
# is for a service VM under load.
DEADLINE_SECONDS = 120.0
# A restart drops the port for a few seconds. Longer than this means that nothing listens there.
NO_CONNECTION_SECONDS = 20.0
# A refresh asks many boards; one that is not ready by then is reported as it is.
READ_DEADLINE_SECONDS = 20.0
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 8.0

T = TypeVar("T")
Unsupported = Mapping[int, tuple[int, ...]]
"""Modules by partition, of those that a board leaves out at the moment."""


class Backoff:
    """Growing pauses up to a deadline, shared by the tries of one thing."""

    def __init__(self, clock: Clock, deadline: float = DEADLINE_SECONDS) -> None:
        self._clock, self._deadline = clock, deadline
        self._started, self._pause = clock.now(), FIRST_PAUSE_SECONDS

    def wait_or_raise(self, error: answers.FabricError) -> None:
        """Wait before the next try; raises the error if it does not pass or it is too late."""
        limit = self._deadline
        if error.code == answers.NO_CONNECTION:
            limit = min(limit, NO_CONNECTION_SECONDS)
        late = self._clock.now() - self._started + self._pause > limit
        if late or error.code not in answers.PASSING_CODES:
            raise error
        self._clock.sleep(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)


@dataclass(frozen=True, slots=True)
class BoardState:
    """A board as it was found, or as a step left it."""

    live: model.LiveTable
    """Empty where the fabric manager waits to be told what is active."""
    wanted: tuple[int, ...] = ()
    """What has to be active: the partitions of the inputs, or those their layout was cut into."""
    warnings: tuple[str, ...] = ()
    """What the board cannot do at the moment, where it does not matter for what is wanted."""
    left: tuple[int, ...] = ()
    """Wanted partitions that are down because of leases, which bring them up."""


@dataclass(frozen=True, slots=True)
class FabricBoard:
    """One board, with the partitions that are declared for it.

    Every method raises `FabricError` if the fabric manager refuses, or is not ready before the deadline.
    """

    spec: model.FabricInputs
    manager: model.FabricManager
    pci: PciDevices
    clock: Clock
    reporter: Reporter
    modules: model.ModuleMap | None = None

    def ensure(self, *, applied: Sequence[int]) -> BoardState:
        """Make exactly the wanted partitions active; what refuses that changes nothing.

        A partition with a GPU that leases are recycling, or that is in quarantine, is left to them. What was
        `applied` before is given back to a fabric manager that has forgotten it in a restart, so that running
        VMs keep their links.
        """
        self._require_modules()
        live = self._list_or_restore(applied)
        unsupported = self._require_table(live)
        wanted = self._wanted(live)
        self._require_healthy(live, wanted, unsupported)
        active = active_ids(live)
        going = sorted(set(active) - set(wanted))
        self._require_unused(live, going)
        live = self._carry_out(live, going, sorted(set(wanted) - set(active)))
        made = self._made(live, wanted)
        health = decide.health_warnings(self.spec.partition_table, made.live, unsupported)
        for warning in (warnings := (*health, *made.warnings)):
            self._note(warning)
        return BoardState(made.live, wanted, warnings, made.left)

    def release(self, *, applied: Sequence[int]) -> None:
        """Deactivate the partitions of the inputs that are active."""
        # A restarted fabric manager has to know what is active before it can be taken down.
        live = self._list_or_restore(applied)
        named = self.spec.wanted if self.spec.layout is None else ()
        ours = [i for i in active_ids(live) if i in {*named, *applied}]
        self._require_unused(live, ours)
        self._carry_out(live, ours, ())

    def read(self) -> model.LiveTable:
        """The live table; empty when the fabric manager waits to be told what was active."""
        try:
            return self._retried(self.manager.partitions, deadline=READ_DEADLINE_SECONDS)
        except answers.FabricError as error:
            if error.code != answers.NOT_CONFIGURED:
                raise
            return {}

    def observe(self, *, wanted: Collection[int]) -> BoardState:
        """The live table, and which of the wanted partitions leases keep down at that moment."""
        live = self.read()
        if set(wanted) <= set(active_ids(live)) or not self.spec.gpus:
            return BoardState(live)
        return self._with_leases(live, wanted)

    def before_adoption(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Which partitions are active, with those that leases have down for now, and which are wanted."""
        live = self.read()
        if not active_ids(live):
            return (), ()
        wanted = self._wanted(live)
        seen = self.observe(wanted=wanted)
        return tuple(sorted({*active_ids(seen.live), *seen.left})), wanted

    def _with_leases(self, live: model.LiveTable, wanted: Collection[int]) -> BoardState:
        """The board and the marks of leases at one moment."""
        seen = self.manager.change(())
        live = seen.live or live
        left = decide.left_to_leases(self.spec, seen.marks, set(wanted) - set(active_ids(live)))
        warnings = decide.quarantine_warnings(self.spec, seen.marks, left)
        return BoardState(live, tuple(wanted), tuple(warnings), left)

    def _made(self, live: model.LiveTable, wanted: tuple[int, ...]) -> BoardState:
        """What is active now is what is wanted, but for what leases keep down."""
        if active_ids(live) == wanted:
            return BoardState(live, wanted)
        seen = self._with_leases(live, wanted)
        active = active_ids(seen.live)
        if {*active, *seen.left} != set(wanted):
            code, none = "fabric.other-set-active", "none"
            raise self._refused(code, active=active or none, wanted=wanted or none)
        if seen.left:
            self._note(
                f"partitions {listed(seen.left)} are left to the leases of this "
                "machine, which are recycling GPUs of them or have them in quarantine"
            )
        return seen

    # What has to hold before anything is changed.

    def _require_modules(self) -> None:
        """Check that every GPU sits in the module that the configuration says."""
        spec = self.spec
        if self.modules is None or not spec.gpus or spec.module_map is not MapSource.READ:
            return
        configured = {int(module): address for module, address in spec.gpus.items()}
        reading = self.modules.read(sorted(configured.values()))
        decide.require_map(self.modules.target, configured, reading)
        if in_use := [m for m, address in sorted(configured.items()) if address in reading.held]:
            self._note(
                f"GPUs {listed(in_use)} are in use, so that they could not be "
                "asked in which module they sit; taken as configured"
            )

    def _require_table(self, live: model.LiveTable) -> Unsupported:
        """Check that the board's table is the one the plan was made with; answers what it leaves out."""
        table = self.spec.partition_table
        if not list(decide.table_differences(table, live)):
            return {}
        unsupported = self.manager.unsupported()
        differences = list(decide.table_differences(table, live, unsupported))
        if differences:
            baseboard, found = self.spec.baseboard, "; ".join(differences)
            raise self._refused("fabric.table", baseboard=baseboard, differences=found)
        return {i: tuple(m) for i, m in unsupported.items() if i not in live}

    def _wanted(self, live: model.LiveTable) -> tuple[int, ...]:
        """What has to be active; of a layout the cut that needs fewest changes and keeps what is used."""
        spec, active = self.spec, active_ids(live)
        if spec.layout is None or not active:
            return spec.wanted
        sizes = sorted(len(live[i].modules) for i in active)
        in_use = self._used(live, active) if sizes != sorted(spec.layout) else ()
        try:
            chosen = plan_layout(spec.partition_table, spec.layout, active=active, in_use=in_use)
        except LayoutError as error:
            raise refused(self.manager.target, "fabric.no-room", str(error)) from error
        return tuple(p.id for p in chosen)

    def _require_healthy(
        self, live: model.LiveTable, wanted: Collection[int], unsupported: Unsupported
    ) -> None:
        """Check that wanted partitions are supported, and those that come up have links."""
        spec = self.spec
        missing = sorted(set(wanted) & set(unsupported))
        if missing:
            failed = decide.failed_modules(spec.partition_table, unsupported)
            named = [f"{m} ({spec.gpus.get(str(m), 'address not given')})" for m in failed]
            case, all_ = "of-gpus" if named else "", sorted(unsupported)
            raise self._refused("fabric.unsupported", case, missing=missing, all=all_, gpus=named)
        coming = set(wanted) - set(active_ids(live))
        if list(decide.without_links(live, coming)):
            # A GPU that is being reset has none.
            coming -= set(decide.left_to_leases(spec, self.manager.change(()).marks, coming))
        cut_off = list(decide.without_links(live, coming))
        if cut_off:
            raise self._refused("fabric.links-down", cut_off="; ".join(cut_off))

    def _require_unused(self, live: model.LiveTable, ids: Collection[int]) -> None:
        """Check that no process holds a GPU of these partitions, and that this can be known."""
        modules = sorted({m for i in ids for m in live[i].modules})
        unknown = [m for m in modules if str(m) not in self.spec.gpus]
        if unknown:
            raise self._refused("fabric.addresses-missing", ids=ids, gpus=unknown)
        if held := "; ".join(self._held(modules)):
            cut = self._other_cut(live)
            raise self._refused(
                "fabric.in-use", "other-cut" if cut else "", ids=ids, held=held, cut=cut
            )

    def _other_cut(self, live: model.LiveTable) -> Sequence[int]:
        """Partitions of the same sizes that leave what is used alone, if there are any."""
        table, active = self.spec.partition_table, active_ids(live)
        sizes = [table.partition(i).size for i in self.spec.wanted]
        try:
            cut = plan_layout(table, sizes, active=active, in_use=self._used(live, active))
        except LayoutError:
            return ()
        return [p.id for p in cut]

    # Who uses GPUs.

    def _users(self, modules: Collection[int]) -> dict[int, tuple[int, ...]]:
        """Processes by module, of those GPUs that have any; one round trip."""
        gpus = self.spec.gpus
        addresses = {gpus[str(m)]: m for m in sorted(modules) if str(m) in gpus}
        found = self.pci.inspect(list(addresses)) if addresses else {}
        return {addresses[f.address]: f.users for f in found.values() if f.users}

    def _held(self, modules: Collection[int]) -> list[str]:
        """GPUs that a process holds, as far as their addresses are known."""
        return [
            f"GPU {module} ({self.spec.gpus[str(module)]}) by process {listed(pids)}"
            for module, pids in self._users(modules).items()
        ]

    def _used(self, live: model.LiveTable, ids: Collection[int]) -> tuple[int, ...]:
        """Which of these partitions have a GPU that a process holds."""
        used = self._users({m for i in ids for m in live[i].modules})
        return tuple(i for i in ids if not used.keys().isdisjoint(live[i].modules))

    # A fabric manager that restarts leaves the switches routing and forgets what is active: telling it.

    def _list_or_restore(self, applied: Sequence[int]) -> model.LiveTable:
        """The live table, after giving a forgetful fabric manager its active set back."""

        def attempt() -> model.LiveTable:
            try:
                live = self.manager.partitions()
            except answers.FabricError as error:
                # -8 has two meanings: still initialising, or waiting for the list after a restart.
                # To a fabric manager that initialises the list says nothing, it answers -8 again.
                if error.code != answers.NOT_CONFIGURED:
                    raise
                known = self._still_active(applied)
                if not self._may_restore(known):
                    raise
                return self._restore(known)
            if active_ids(live) or not applied:
                return live
            known = self._still_active(applied)
            if not self._may_restore(known):
                return live
            try:
                return self._restore(known)
            except answers.FabricError as error:
                # It answered, so it may well remember, and somebody has deactivated all by hand.
                modules = {m for i in known for m in live[i].modules}
                if error.code in answers.PASSING_CODES or self._held(modules):
                    raise
                return live

        return self._retried(attempt)

    def _restore(self, applied: Sequence[int]) -> model.LiveTable:
        """Tell the fabric manager what is active, also that nothing is, and look whether it took it in."""
        self.manager.set_activated(applied)
        live = self.manager.partitions()
        self._note(
            "the fabric manager had forgotten what is active; "
            f"told it: partitions {listed(applied) or 'none'}"
        )
        lost = [i for i in applied if i in live and not live[i].active]
        if held := "; ".join(self._held({m for i in lost for m in live[i].modules})):
            # Published versions of fmpm send an empty list whatever they are given. Without users
            # that does no harm: what is wanted is activated anew.
            raise self._refused("fabric.forgotten", lost=lost, held=held)
        return live

    def _may_restore(self, applied: Sequence[int]) -> bool:
        """Whether `applied` can be the truth: with nothing known, no GPU may be in use."""
        if applied or not self.spec.gpus:
            return bool(applied)
        return not any(f.users for f in self.pci.inspect(list(self.spec.gpus.values())).values())

    def _still_active(self, applied: Sequence[int]) -> Sequence[int]:
        """What was made active, without what leases have taken down since; what a VM uses was not."""
        if not applied or not self.spec.gpus:
            return applied
        # Its own table may be silent by now; which GPUs they are is known without it.
        table = self.spec.partition_table
        down = decide.left_to_leases(self.spec, self.manager.change(()).marks, applied)
        free = [i for i in down if not self._held(table.partition(i).modules)]
        return [i for i in applied if i not in free]

    # Steps.

    def _step(
        self, verb: Literal["activate", "deactivate"], number: int, modules: Sequence[int]
    ) -> model.FabricStep:
        return model.FabricStep(verb, number, tuple(modules), self.spec.addresses(modules))

    def _carry_out(
        self, live: model.LiveTable, down: Collection[int], up: Collection[int]
    ) -> model.LiveTable:
        """Do the steps, again from where they stopped while the fabric manager is not ready."""
        table, current, backoff = (
            self.spec.partition_table,
            {*active_ids(live)},
            Backoff(self.clock),
        )
        # All deactivations, then all activations, so that the active set is disjoint after each.
        left = [self._step("deactivate", i, live[i].modules) for i in down]
        left += [self._step("activate", i, table.partition(i).modules) for i in up]
        if not left:
            return live
        while True:
            change = self.manager.change(left)
            for step in left[: change.done]:
                current.discard(step.partition)
                if step.verb == "activate" and step.partition not in change.left:
                    current.add(step.partition)
            if change.done:
                backoff = Backoff(self.clock)
            left = left[change.done :]
            if change.held:
                raise self._refused("fabric.held-meanwhile", held=change.held)
            if change.failed is None:
                if change.live is not None:
                    return change.live
                return self._retried(self.manager.partitions)
            if answers.action(change.failed.code, left[0].verb) is answers.Action.LOOK:
                if not self._is_done(left[0]):
                    raise change.failed
                left = left[1:]
                continue
            backoff.wait_or_raise(change.failed)
            if change.failed.code == answers.NOT_CONFIGURED:
                self._remind(sorted(current))

    def _is_done(self, step: model.FabricStep) -> bool:
        """Whether the table says that this step has nothing left to do."""
        live = self._retried(self.manager.partitions)
        active = step.partition in live and live[step.partition].active
        return active == (step.verb == "activate")

    def _remind(self, current: Sequence[int]) -> None:
        """A fabric manager that restarted between two steps changes nothing until it has its list."""
        live = self._list_or_restore(current)
        if not current and not active_ids(live) and self._may_restore(current):
            self._restore(current)

    def _retried(self, call: Callable[[], T], *, deadline: float = DEADLINE_SECONDS) -> T:
        """The call, retried with backoff while the fabric manager is not ready."""
        backoff = Backoff(self.clock, deadline)
        while True:
            try:
                return call()
            except answers.FabricError as error:
                backoff.wait_or_raise(error)

    def _refused(self, code: str, case: str = "", **values: Any) -> Refused:
        return refused(self.manager.target, code, case=case, **values)

    def _note(self, line: str) -> None:
        self.reporter.note(f"{self.manager.target}: {line}")
