"""A board with its fabric manager, VMs and a clock, for the rules about partitions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuclusters.fabric import model
from gpuclusters.fabric.answers import FabricError
from gpuclusters.fabric.board import FabricBoard
from gpuclusters.fabric.table import TABLES, Baseboard
from gpuclusters.host.model import PciFunction
from tests.fixtures.made_up import CONNECTION
from tests.fixtures.waiting import Waiting

H100 = TABLES[Baseboard.HGX_H100]
GPUS = {str(m): f"0000:{m:02x}:00.0" for m in range(1, 9)}
PAIRS = [3, 4, 5, 6]


def inputs(partitions: Sequence[int] | None, **changes: Any) -> model.FabricInputs:
    return model.FabricInputs.model_validate(
        {
            "connection": CONNECTION,
            "board": "board-0",
            "baseboard": "hgx-h100",
            "partitions": partitions,
            "gpus": GPUS,
        }
        | changes
    )


@dataclass
class Board(Waiting):
    """A board with its fabric manager, VMs, and a clock that only waiting moves."""

    active: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)  # modules that a VM holds
    table: dict[int, tuple[int, ...]] = field(
        default_factory=lambda: {p.id: p.modules for p in H100.partitions}
    )
    answers: list[int | None] = field(default_factory=list)  # codes before the real answer
    waits_for_list: bool = False
    lists_while_waiting: bool = False
    passes_list_on: bool = True
    target: str = "hgx-01, board board-0"
    calls: list[str] = field(default_factory=list)
    history: list[set[int]] = field(default_factory=list)
    meanwhile: dict[str, Callable[[], object]] = field(default_factory=dict)
    """What others do once, just before an action."""
    trips: int = 0
    shuffled: dict[str, int] = field(default_factory=dict)  # modules elsewhere than in GPUS
    left_out: dict[int, tuple[int, ...]] = field(default_factory=dict)
    links: dict[int, int] = field(default_factory=dict)  # of GPUs that have fewer than 18
    withheld: set[int] = field(default_factory=set)  # modules that leases recycle
    quarantined: set[int] = field(default_factory=set)  # of these

    def _answer(self, action: str, *, works_while_waiting: bool = False) -> None:
        self.calls.append(action)
        if action in self.meanwhile:
            self.meanwhile.pop(action)()
        if self.answers and (code := self.answers.pop(0)) is not None:
            raise FabricError(self.target, action, code, "")
        if self.waits_for_list and not works_while_waiting:
            raise FabricError(self.target, action, -8, "")

    def partitions(self) -> Mapping[int, model.LivePartition]:
        self._answer("list", works_while_waiting=self.lists_while_waiting)
        self.trips += 1
        return self._table()

    def activate(self, partition_id: int) -> None:
        self._answer(f"activate {partition_id}")
        if partition_id in self.active:
            raise FabricError(self.target, "activate", -17, "")
        busy = {m for i in self.active for m in self.table[i]}
        assert not busy & set(self.table[partition_id]), "a GPU in two active partitions"
        self.active.add(partition_id)
        self.history.append(set(self.active))

    def deactivate(self, partition_id: int) -> None:
        self._answer(f"deactivate {partition_id}")
        if partition_id not in self.active:
            raise FabricError(self.target, "deactivate", -18, "")
        assert not self.used & set(self.table[partition_id]), "pulled from under a VM"
        self.active.remove(partition_id)
        self.history.append(set(self.active))

    def change(self, steps: Sequence[model.FabricStep]) -> model.FabricChange:
        """What the script on the host does: in order, up to the first that cannot be done."""
        self.trips += 1
        left: list[int] = []
        for done, step in enumerate(steps):
            deactivates = step.verb == "deactivate"
            modules = {int(a[5:7], 16) for a in step.addresses}
            if deactivates and self.used & modules:
                return model.FabricChange(done, tuple(left), held=f"{step.words}: process 4242")
            if not deactivates and (self.withheld | self.quarantined) & modules:
                left.append(step.partition)
                continue
            try:
                (self.deactivate if deactivates else self.activate)(step.partition)
            except FabricError as error:
                if error.code != (-18 if deactivates else -17):
                    told = FabricError(self.target, step.words, error.code, "")
                    return model.FabricChange(done, tuple(left), failed=told)
        marks = model.LeaseMarks(
            frozenset(GPUS[str(m)] for m in self.withheld | self.quarantined),
            frozenset(GPUS[str(m)] for m in self.quarantined),
        )
        live = None if self.waits_for_list else self._table()
        return model.FabricChange(len(steps), tuple(left), live=live, marks=marks)

    def unsupported(self) -> Mapping[int, tuple[int, ...]]:
        self.calls.append("unsupported")
        return self.left_out

    def _table(self) -> Mapping[int, model.LivePartition]:
        return {
            i: model.LivePartition(
                i,
                modules,
                i in self.active,
                {m: (self.links.get(m, 18), 18 if len(modules) > 1 else 0) for m in modules},
            )
            for i, modules in self.table.items()
        }

    def set_activated(self, partition_ids: Sequence[int]) -> None:
        self._answer(f"set {sorted(partition_ids)}", works_while_waiting=True)
        self.waits_for_list = False
        self.active = set(partition_ids) if self.passes_list_on else set()

    def inspect(self, addresses: Sequence[str]) -> Mapping[str, PciFunction]:
        users = {a: (4242,) if int(m) in self.used else () for m, a in GPUS.items()}
        return {a: PciFunction(a, True, "1", "vfio-pci", users[a]) for a in addresses}

    def read(self, addresses: Sequence[str]) -> model.ModuleReading:
        self.calls.append("modules")
        of = {a: int(m) for m, a in GPUS.items()}
        held = {a: "4242" for a in addresses if of[a] in self.used}
        modules = {a: self.shuffled.get(a, of[a]) for a in addresses if a not in held}
        return model.ModuleReading(modules=modules, held=held)

    def restart(self) -> None:
        self.active, self.waits_for_list = set(), True

    def declared(self, spec: model.FabricInputs, *, modules: bool = False) -> FabricBoard:
        return FabricBoard(spec, self, self, self, self, self if modules else None)
