"""What controllers have in common: they are told of the objects of one kind, and work on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from caas.cluster import Cluster, Object
from gpuclusters.core.ports import ObjectKind


class Controller(Protocol):
    """Works on whatever object it is told of."""

    def observe(self, body: Object) -> None:
        """An object was made or changed."""

    def forget(self, body: Object) -> None:
        """An object is gone."""

    async def run(self) -> None:
        """Work until cancelled."""


async def control(
    cluster: Cluster,
    kind: ObjectKind,
    controller: Controller,
    mine: Callable[[str], bool] = lambda _name: True,
) -> None:
    """Have a controller work on the objects of a kind, those whose names are its own, until cancelled."""

    async def tell() -> None:
        async for change, body in cluster.watch(kind):
            if change == "SYNC" or not mine(body["metadata"]["name"]):
                continue
            if change == "DELETED":
                controller.forget(body)
            else:
                controller.observe(body)

    async with asyncio.TaskGroup() as group:
        group.create_task(tell(), name=f"changes of {kind.plural}")
        group.create_task(controller.run(), name=f"work on {kind.plural}")
