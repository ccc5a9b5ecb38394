"""What the API server itself refuses about GPULeases, whoever writes."""

import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from caas.cluster import Cluster, ClusterError
from gpuclusters.lease.model import GPU_LEASE, GPULeaseSpec, Phase, lease_object
from tests.caas.leasekit import define
from tests.caas.loops import in_loop
from tests.fixtures.control_plane import KubeCluster

pytestmark = pytest.mark.lab

NOW = "2026-01-01T00:00:00Z"
PROOFS = [{"type": t, "status": "True", "reason": "Shown"} for t in ("ResetDone", "MemoryCleared")]
HOLDER = {
    "tenant": "acme",
    "namespace": "acme",
    "pod": "c-1",
    "podUid": "u-1",
    "container": "c-1",
    "partition": 7,
    "gpus": [1],
}

Body = dict[str, Any]


@asynccontextmanager
async def lease(cluster: Cluster) -> AsyncIterator[Body]:
    """A new lease, in its first phase."""
    await define(cluster)
    spec = GPULeaseSpec(node=f"n-{secrets.token_hex(4)}", module=1, pci="0000:0f:00.0", device="1")
    body = await cluster.create(GPU_LEASE, lease_object(spec))
    try:
        yield await to(cluster, body, "Resetting", cycle=1)
    finally:
        await cluster.delete(GPU_LEASE, body["metadata"]["name"])


async def to(cluster: Cluster, body: Body, phase: str, **changes: Any) -> Body:
    """Store another phase; what is None goes away."""
    status = {**body.get("status", {}), "phase": phase, "since": NOW, **changes}
    kept = {key: value for key, value in status.items() if value is not None}
    return await cluster.replace_status(GPU_LEASE, {**body, "status": kept})


async def free(cluster: Cluster, body: Body) -> Body:
    """Through the cycle, as the machine goes."""
    body = await to(cluster, body, "Scrubbing")
    body = await to(cluster, body, "Verifying")
    return await to(cluster, body, "Free", conditions=PROOFS)


async def leased(cluster: Cluster, body: Body) -> Body:
    body = await free(cluster, body)
    body = await to(cluster, body, "Reserved", holder=HOLDER)
    body = await to(cluster, body, "Activating")
    return await to(cluster, body, "Leased", holder=HOLDER | {"admitted": True})


async def quarantined(cluster: Cluster, body: Body) -> Body:
    return await to(cluster, body, "Quarantined", reason="Test")


async def scrubbed_after_acme(cluster: Cluster, body: Body) -> Body:
    return await to(cluster, body, "Scrubbing", lastTenant="acme")


async def verified_after_acme(cluster: Cluster, body: Body) -> Body:
    return await to(cluster, await scrubbed_after_acme(cluster, body), "Verifying")


async def same(_cluster: Cluster, body: Body) -> Body:
    return body


Prepare = Callable[[Cluster, Body], Awaitable[Body]]

REFUSED: dict[str, tuple[Prepare, str, dict[str, Any], str]] = {
    "a phase is not skipped": (same, "Verifying", {}, "none is skipped"),
    "free needs a proof": (same, "Free", {}, "none is skipped"),
    "a free GPU is not leased at once": (free, "Leased", {"holder": HOLDER}, "none is skipped"),
    "reserved has a holder": (free, "Reserved", {}, "has a holder"),
    "free has no holder": (free, "Free", {"holder": HOLDER}, "has a holder"),
    "quarantine has a reason": (same, "Quarantined", {}, "has a reason"),
    "a cycle is not made up": (same, "Resetting", {"cycle": 2}, "counts the entries"),
    "quarantine does not end by itself": (quarantined, "Resetting", {"cycle": 2}, "recheck"),
    "quarantine does not end in free": (
        quarantined,
        "Free",
        {"conditions": PROOFS},
        "none is skipped",
    ),
    "a holder is not replaced": (
        leased,
        "Leased",
        {"holder": HOLDER | {"podUid": "u-2"}},
        "only through Free",
    ),
    "nothing is allocated that is not admitted": (
        free,
        "Reserved",
        {"holder": HOLDER | {"allocated": True}},
        "allocated to an admitted pod",
    ),
    "a pod is not let go before its lease": (
        free,
        "Reserved",
        {"holder": HOLDER | {"admitted": True}},
        "when its GPU is leased",
    ),
    "the last tenant is not forgotten before the GPU is free": (
        scrubbed_after_acme,
        "Verifying",
        {"lastTenant": None},
        "named until it is free",
    ),
    "the last tenant is not exchanged": (
        scrubbed_after_acme,
        "Verifying",
        {"lastTenant": "globex"},
        "named until it is free",
    ),
    "a free GPU has no last tenant": (
        verified_after_acme,
        "Free",
        {"conditions": PROOFS},
        "named until it is free",
    ),
    "holder.gpus names the GPU": (
        free,
        "Reserved",
        {"holder": HOLDER | {"gpus": [2]}},
        "names the GPU itself",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@in_loop
async def test_the_server_refuses_what_the_machine_would_never_write(
    kube_api: KubeCluster, case: str
) -> None:
    prepare, phase, changes, said = REFUSED[case]
    async with Cluster(kube_api.kubeconfig) as cluster, lease(cluster) as body:
        body = await prepare(cluster, body)
        with pytest.raises(ClusterError, match=said):
            await to(cluster, body, phase, **changes)


@in_loop
async def test_a_gpu_that_the_kubelet_still_lists_is_not_reset(kube_api: KubeCluster) -> None:
    async with Cluster(kube_api.kubeconfig) as cluster, lease(cluster) as body:
        body = await leased(cluster, body)
        held = HOLDER | {"admitted": True, "allocated": True}
        body = await to(cluster, body, "Leased", holder=held)
        body = await to(cluster, body, "Releasing")
        with pytest.raises(ClusterError, match="after the kubelet has let it go"):
            await to(cluster, body, "Resetting", cycle=2, holder=None)
        let_go = HOLDER | {"admitted": True, "allocated": False}
        body = await to(cluster, body, "Releasing", holder=let_go)
        body = await to(cluster, body, "Resetting", cycle=2, holder=None)
        assert body["status"]["phase"] == Phase.RESETTING


@in_loop
async def test_quarantine_keeps_a_holder_that_was_admitted_and_admits_none(
    kube_api: KubeCluster,
) -> None:
    async with Cluster(kube_api.kubeconfig) as cluster, lease(cluster) as body:
        body = await leased(cluster, body)
        held = HOLDER | {"admitted": True, "allocated": True}
        body = await to(cluster, body, "Leased", holder=held)
        body = await to(cluster, body, "Releasing")
        timed_out = {"reason": "ReleaseTimedOut", "lastTenant": "acme"}
        body = await to(cluster, body, "Quarantined", holder=held, **timed_out)
        # As the device plugin writes it, and the machine afterwards.
        let_go = held | {"allocated": False}
        body = await to(cluster, body, "Quarantined", holder=let_go)
        body = await to(cluster, body, "Quarantined", holder=None)
        assert body["status"]["lastTenant"] == "acme"
        with pytest.raises(ClusterError, match="when its GPU is leased"):
            await to(cluster, body, "Quarantined", holder=let_go)


@in_loop
async def test_which_gpu_a_lease_is_of_cannot_be_changed_or_misnamed(kube_api: KubeCluster) -> None:
    async with Cluster(kube_api.kubeconfig) as cluster, lease(cluster) as body:
        name = body["metadata"]["name"]
        with pytest.raises(ClusterError, match="cannot be changed"):
            await cluster.patch(GPU_LEASE, name, "", {"spec": {"pci": "0000:10:00.0"}})
        other = {**body, "metadata": {"name": f"{body['spec']['node']}-gpu2"}}
        with pytest.raises(ClusterError, match="is named"):
            await cluster.create(GPU_LEASE, other)
        with contextlib.suppress(KeyError):
            del other["status"]
        stolen = {**other, "metadata": {"name": f"x-{name}"}}
        with pytest.raises(ClusterError, match="is named"):
            await cluster.create(GPU_LEASE, stolen)
