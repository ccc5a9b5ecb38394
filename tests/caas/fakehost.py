"""A machine in this process: does effects after a fixed time, and remembers what was really done."""

import asyncio
from collections.abc import Callable

from caas.controllers.lease_host import Effects
from caas.settings import Host
from gpuclusters.fabric.table import TABLES
from gpuclusters.lease import board


class FakeHost:
    """One board. `dirty` are GPUs that a tenant had and that were not reset, cleared and read since."""

    def __init__(self, host: Host, orders: board.Orders, *, seconds: float = 0.0) -> None:
        self.table = {p.id: set(p.modules) for p in TABLES[host.baseboard].partitions}
        self.orders = orders
        self.seconds = seconds
        self.active: set[int] = set()
        self.withheld: set[int] = set()
        self.level: dict[int, int] = {gpu.module: 0 for gpu in host.gpus}
        self.says: Callable[[board.Effect], board.Outcome | None] = lambda _: None
        """What becomes of an effect that is not done."""

    def use(self, modules: set[int]) -> None:
        """A tenant's VM ran on these GPUs."""
        for module in modules:
            self.level[module] = 0

    def verified(self, modules: set[int]) -> bool:
        """Whether each was reset, cleared and read, in this order, since its last tenant."""
        return all(self.level[module] == 3 for module in modules)

    async def do(self, effect: board.Effect) -> board.Outcome:
        """Do it; in the end, and unless it is cut off before."""
        await asyncio.sleep(self.seconds)
        outcome = self.says(effect) or self._do(effect)
        await asyncio.sleep(0)
        return outcome

    def _do(self, effect: board.Effect) -> board.Outcome:
        match effect:
            case board.ReadBoard():
                offered = frozenset(self.table)
                active, withheld = frozenset(self.active), frozenset(self.withheld)
                return board.Succeeded(
                    effect, board.BoardSeen(offered, active, frozenset(), withheld)
                )
            case board.Withhold((module, _, _)):
                self.withheld.add(module)
                return board.Succeeded(effect)
            case board.Unfence(modules):
                self.withheld -= modules
                return board.Succeeded(effect)
            case board.ActivatePartition(partition):
                if any(
                    q != partition and self.table[q] & self.table[partition] for q in self.active
                ):
                    return board.Failed(effect, "in use")
                self.active.add(partition)
                self.withheld -= self.table[partition]
                return board.Succeeded(effect)
            case board.DeactivatePartition(partition):
                self.withheld |= self.table[partition]
                self.active.discard(partition)
                return board.Succeeded(effect)
            case board.Reset(module):
                assert module in self.withheld
                assert not any(module in self.table[q] for q in self.active)
                self.level[module] = max(self.level[module], 1)
                return board.Succeeded(effect)
            case board.ClearMemory(module):
                if self.level[module] == 1:
                    self.level[module] = 2
                return board.Succeeded(effect)
            case board.ReadFirmware(module):
                if self.level[module] == 2:
                    self.level[module] = 3
                return board.Succeeded(effect, {f"FW_GPU_{module}": "1"})
            case board.ReadKnobs():
                return board.Succeeded(effect, {})
            case _:
                raise AssertionError(f"not for a host: {effect}")


class FakeHosts:
    """Makes them, and keeps them over restarts of controllers: machines do not forget."""

    def __init__(self, *, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.by_name: dict[str, FakeHost] = {}

    def __call__(self, host: Host, orders: board.Orders) -> Effects:
        """The machine of that name."""
        if host.name not in self.by_name:
            self.by_name[host.name] = FakeHost(host, orders, seconds=self.seconds)
        return self.by_name[host.name]


GOLDEN = {"versions": {"FW_GPU": ["1"]}, "knobs": {}}
