"""Asks for tenancies and for plain writes from a process of its own, as others do."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

from caas.cluster import Cluster
from gpuclusters.core.ports import ObjectKind
from gpuclusters.tenancy import proof as tenancy_proof
from gpuclusters.tenancy.model import TENANCY
from gpuclusters.tenancy.objects import NETWORK_POLICY

MANAGER = "bench"
CONFIG = ObjectKind("", "v1", "configmaps", "ConfigMap", namespaced=True)


def tenancies(kubeconfig: Path, bodies: list[dict[str, Any]]) -> list[float]:
    """Seconds from asking for all of them at once to each being ready."""
    return asyncio.run(_tenancies(kubeconfig, bodies))


Batch = list[tuple[ObjectKind, dict[str, Any]]]


def writes(kubeconfig: Path, batches: list[Batch], at_once: int) -> list[float]:
    """Seconds from asking for all objects to each batch being written, so many batches at once.

    The first of a batch is written before the others, which may live in it.
    """
    return asyncio.run(_writes(kubeconfig, batches, at_once))


async def _verdicts(cluster: Cluster) -> None:
    """Calls every new network policy valid at once, as Cilium's operator does.

    The lab's stand-in does too, but four at a time: with hundreds it is the stand-in that is measured.
    """
    told: set[asyncio.Task[Any]] = set()
    async for event in cluster.watch(NETWORK_POLICY):
        if event.kind not in ("ADDED", "MODIFIED"):
            continue
        if (event.object.get("status") or {}).get("conditions"):
            continue
        metadata = event.object["metadata"]
        said = {"conditions": [{"type": "Valid", "status": "True", "message": "bench"}]}
        work = asyncio.create_task(
            cluster.patch(
                NETWORK_POLICY,
                metadata["name"],
                metadata["namespace"],
                {"status": said},
                subresource="status",
            )
        )
        told.add(work)
        work.add_done_callback(told.discard)


async def _tenancies(kubeconfig: Path, bodies: list[dict[str, Any]]) -> list[float]:
    missing = {body["metadata"]["name"] for body in bodies}
    took: list[float] = []
    async with Cluster(kubeconfig) as cluster:
        stream = cluster.watch(TENANCY)
        async with aclosing(stream):
            async for event in stream:
                if event.kind == "SYNC":
                    break
            operating = asyncio.create_task(_verdicts(cluster))
            began = time.monotonic()
            asking = [asyncio.create_task(cluster.create(TENANCY, body)) for body in bodies]
            async for event in stream:
                name = event.object.get("metadata", {}).get("name")
                if name in missing and tenancy_proof.ready(event.object):
                    missing.discard(name)
                    took.append(time.monotonic() - began)
                if not missing:
                    break
            await asyncio.gather(*asking)
            operating.cancel()
            await asyncio.gather(operating, return_exceptions=True)
    return took


async def _writes(kubeconfig: Path, batches: list[Batch], at_once: int) -> list[float]:
    took: list[float] = []
    turn = asyncio.Semaphore(at_once)
    async with Cluster(kubeconfig) as cluster:
        began = time.monotonic()

        async def write(batch: Batch) -> None:
            async with turn:
                (kind, body), *others = batch
                await cluster.apply(kind, body, manager=MANAGER)
                await asyncio.gather(
                    *(cluster.apply(kind, body, manager=MANAGER) for kind, body in others)
                )
            took.append(time.monotonic() - began)

        await asyncio.gather(*(write(bodies) for bodies in batches))
    return took
