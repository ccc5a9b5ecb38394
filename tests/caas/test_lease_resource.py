"""What the API server itself refuses about GPULeases, whoever writes."""

import secrets
from collections.abc import AsyncIterator, Iterable
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
HELD = HOLDER | {"admitted": True, "allocated": True}

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


Step = tuple[str, dict[str, Any]]
"""A phase, and what else is written with it."""

FREE: list[Step] = [("Scrubbing", {}), ("Verifying", {}), ("Free", {"conditions": PROOFS})]
LEASED: list[Step] = [
    *FREE,
    ("Reserved", {"holder": HOLDER}),
    ("Activating", {}),
    ("Leased", {"holder": HOLDER | {"admitted": True}}),
]
RELEASING: list[Step] = [*LEASED, ("Leased", {"holder": HELD}), ("Releasing", {})]
SCRUBBED: Step = ("Scrubbing", {"lastTenant": "acme"})


async def through(cluster: Cluster, body: Body, steps: Iterable[Step]) -> Body:
    """The cycle, as the machine goes."""
    for phase, changes in steps:
        body = await to(cluster, body, phase, **changes)
    return body


REFUSED: dict[str, tuple[list[Step], Step, str]] = {
    "a phase is not skipped": ([], ("Verifying", {}), "none is skipped"),
    "free needs a proof": ([], ("Free", {}), "none is skipped"),
    "a free GPU is not leased at once": (FREE, ("Leased", {"holder": HOLDER}), "none is skipped"),
    "reserved has a holder": (FREE, ("Reserved", {}), "has a holder"),
    "free has no holder": (FREE, ("Free", {"holder": HOLDER}), "has a holder"),
    "quarantine has a reason": ([], ("Quarantined", {}), "has a reason"),
    "a cycle is not made up": ([], ("Resetting", {"cycle": 2}), "counts the entries"),
    "quarantine does not end by itself": (
        [("Quarantined", {"reason": "Test"})],
        ("Resetting", {"cycle": 2}),
        "recheck",
    ),
    "quarantine does not end in free": (
        [("Quarantined", {"reason": "Test"})],
        ("Free", {"conditions": PROOFS}),
        "none is skipped",
    ),
    "a holder is not replaced": (
        LEASED,
        ("Leased", {"holder": HOLDER | {"podUid": "u-2"}}),
        "only through Free",
    ),
    "nothing is allocated that is not admitted": (
        FREE,
        ("Reserved", {"holder": HOLDER | {"allocated": True}}),
        "allocated to an admitted pod",
    ),
    "a pod is not let go before its lease": (
        FREE,
        ("Reserved", {"holder": HOLDER | {"admitted": True}}),
        "when its GPU is leased",
    ),
    "the last tenant is not forgotten before the GPU is free": (
        [SCRUBBED],
        ("Verifying", {"lastTenant": None}),
        "named until it is free",
    ),
    "the last tenant is not exchanged": (
        [SCRUBBED],
        ("Verifying", {"lastTenant": "globex"}),
        "named until it is free",
    ),
    "a free GPU has no last tenant": (
        [SCRUBBED, ("Verifying", {})],
        ("Free", {"conditions": PROOFS}),
        "named until it is free",
    ),
    "holder.gpus names the GPU": (
        FREE,
        ("Reserved", {"holder": HOLDER | {"gpus": [2]}}),
        "names the GPU itself",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@in_loop
async def test_the_server_refuses_what_the_machine_would_never_write(
    kube_api: KubeCluster, case: str
) -> None:
    before, (phase, changes), said = REFUSED[case]
    async with Cluster(kube_api.kubeconfig) as cluster, lease(cluster) as body:
        body = await through(cluster, body, before)
        with pytest.raises(ClusterError, match=said):
            await to(cluster, body, phase, **changes)


@in_loop
async def test_a_gpu_that_the_kubelet_still_lists_is_not_reset(kube_api: KubeCluster) -> None:
    async with Cluster(kube_api.kubeconfig) as cluster, lease(cluster) as body:
        body = await through(cluster, body, RELEASING)
        with pytest.raises(ClusterError, match="after the kubelet has let it go"):
            await to(cluster, body, "Resetting", cycle=2, holder=None)
        body = await to(cluster, body, "Releasing", holder=HELD | {"allocated": False})
        body = await to(cluster, body, "Resetting", cycle=2, holder=None)
        assert body["status"]["phase"] == Phase.RESETTING


@in_loop
async def test_quarantine_keeps_a_holder_that_was_admitted_and_admits_none(
    kube_api: KubeCluster,
) -> None:
    async with Cluster(kube_api.kubeconfig) as cluster, lease(cluster) as body:
        body = await through(cluster, body, RELEASING)
        timed_out = {"reason": "ReleaseTimedOut", "lastTenant": "acme"}
        body = await to(cluster, body, "Quarantined", holder=HELD, **timed_out)
        # As the device plugin writes it, and the machine afterwards.
        let_go = HELD | {"allocated": False}
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
        other.pop("status", None)
        stolen = {**other, "metadata": {"name": f"x-{name}"}}
        with pytest.raises(ClusterError, match="is named"):
            await cluster.create(GPU_LEASE, stolen)
