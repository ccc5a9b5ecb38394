"""Waiting until objects of a cluster are so: told by a watch, not by asking again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from caas.cluster import Cluster
from gpuclusters.core.ports import ObjectKind

Objects = dict[str, dict[str, Any]]
"""By name."""


async def come(
    cluster: Cluster,
    kind: ObjectKind,
    holds: Callable[[Objects], bool],
    *,
    namespace: str = "",
    labels: str = "",
    fields: str = "",
    beside: asyncio.Task[None] | None = None,
    seconds: float,
) -> Objects:
    """The chosen objects as soon as they are so. Each change is looked at, however soon another follows.

    Args:
        cluster: entered.
        kind: of the objects.
        holds: whether this is what is waited for.
        namespace: where they are.
        labels: selector.
        fields: selector.
        beside: what must not break meanwhile.
        seconds: how long, at most.
    """
    known: Objects = {}

    async def look() -> None:
        read = False
        async for change, body in cluster.watch(kind, namespace, labels, fields):
            if change == "SYNC":
                read = True
            elif change == "DELETED":
                known.pop(body["metadata"]["name"], None)
            else:
                known[body["metadata"]["name"]] = body
            if read and holds(known):
                return

    looking = asyncio.create_task(look())
    others = {beside} if beside is not None else set()
    try:
        await asyncio.wait({looking, *others}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if beside is not None and beside.done():
            beside.result()
        states = {name: body.get("status") for name, body in known.items()}
        assert looking.done(), f"it did not happen within {seconds:g} s: {states}"
        looking.result()
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    return known
