"""The MIG manager of every node: follows the label `nvidia.com/mig.config`, tells how it went."""

import asyncio
from collections.abc import Sequence
from typing import Final

from lab.gpu_operator.labelling import MIG_CONFIG, Labels
from lab.gpu_operator.machines import Machines
from lab.gpu_operator.operands import MIG_MANAGER
from lab.gpu_operator.sharing import balanced, layouts
from lab.gpu_operator.view import View, labels
from lab.hosts import HostsError

MIG_STATE: Final = f"{MIG_CONFIG}.state"
PENDING: Final = "pending"
SUCCESS: Final = "success"
FAILED: Final = "failed"
_BALANCED = (("1g.10gb", "2g.20gb", "3g.40gb"),)
"""Sizes of the products that the simulated hosts have."""


class MigManagers:
    """Remembers which nodes it told `pending`: that is seen before the work begins."""

    def __init__(self, machines: Machines, put: Labels) -> None:
        self._machines = machines
        self._put = put
        self._pending: set[str] = set()

    async def look(self, view: View) -> frozenset[str]:
        """Take every node a step further; those that are being divided, whose GPUs nobody has."""
        for node in view.gpu_nodes:
            wanted = labels(view.nodes[node]).get(MIG_CONFIG, "")
            if not wanted or not view.runs(MIG_MANAGER, node):
                continue
            if view.memory.layouts.get(node) == wanted:
                # It was asked for another one and then for this again, or the node joined anew.
                self._pending.discard(node)
                if labels(view.nodes[node]).get(MIG_STATE, PENDING) == PENDING:
                    await self._put.change(node, {MIG_STATE: SUCCESS})
                continue
            if node not in self._pending:
                self._pending.add(node)
                await self._put.change(node, {MIG_STATE: PENDING})
                continue
            state = SUCCESS if await asyncio.to_thread(self._divide, view, node, wanted) else FAILED
            self._pending.discard(node)
            view.memory.layouts[node] = wanted
            view.memory.save()
            await self._put.change(node, {MIG_STATE: state})
        return frozenset(self._pending)

    def _divide(self, view: View, node: str, name: str) -> bool:
        count = view.machines[node].count
        config = str(((view.spec.get("migManager") or {}).get("config") or {}).get("name", ""))
        text = view.configs.get(config, {}).get("config.yaml", "") if config else ""
        choices: Sequence[dict[int, Sequence[str]]] = layouts(name, count, text)
        if name == "all-balanced" and not text:
            choices = [one for sizes in _BALANCED for one in balanced(count, sizes)]
        for layout in choices:
            try:
                self._machines.divide(node, layout)
            except HostsError:
                continue  # So many do not fit; the next choice has fewer.
            return True
        return False
