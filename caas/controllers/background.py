"""Work that goes on beside an operator's handlers, for as long as the operator runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import kopf


def run_beside(
    registry: kopf.OperatorRegistry, name: str, work: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Have an operator start this when it starts, and end it before it ends."""
    running: list[asyncio.Task[None]] = []

    @kopf.on.startup(registry=registry, id=f"{name}-start")
    async def start(**_: Any) -> None:
        running.append(asyncio.create_task(work(), name=name))

    @kopf.on.cleanup(registry=registry, id=f"{name}-stop")
    async def stop(**_: Any) -> None:
        for task in running:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
