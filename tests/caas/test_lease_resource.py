"""What the API server itself refuses about GPULeases, whoever writes."""

import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from caas.cluster import Cluster, ClusterError
from gpuclusters.lease.model import GPU_LEASE, GPULeaseSpec, Phase, lease_object
from tests.caas.leasekit import define
from tests.caas.leasesteps import HOLDER
from tests.caas.loops import in_loop
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.tables import beside

pytestmark = pytest.mark.lab

NOW = "2026-01-01T00:00:00Z"
PROOFS = [{"type": t, "status": "True", "reason": "Shown"} for t in ("ResetDone", "MemoryCleared")]
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
TIMED_OUT = {"reason": "ReleaseTimedOut", "lastTenant": "acme"}
LET_GO = HELD | {"allocated": False}
SCRUBBING: list[Step] = [("Scrubbing", {"lastTenant": "acme"})]
WAYS: dict[str, list[Step]] = {
    "new": [],
    "free": FREE,
    "leased": LEASED,
    "releasing": RELEASING,
    # As the device plugin writes it, and the machine afterwards.
    "let go in quarantine": [
        *RELEASING,
        ("Quarantined", {"holder": HELD, **TIMED_OUT}),
        ("Quarantined", {"holder": LET_GO}),
        ("Quarantined", {"holder": None}),
    ],
    "closed": [("Quarantined", {"reason": "Test"})],
    "scrubbing": SCRUBBING,
    "verifying": [*SCRUBBING, ("Verifying", {})],
}
REFUSED = beside(__file__, "lease_refusals.yaml")


async def through(cluster: Cluster, body: Body, steps: Iterable[Step]) -> Body:
    """The cycle, as the machine goes."""
    for phase, changes in steps:
        body = await to(cluster, body, phase, **changes)
    return body


@pytest.mark.parametrize("case", REFUSED)
@in_loop
async def test_the_server_refuses_what_the_machine_would_never_write(
    kube_api: KubeCluster, case: str
) -> None:
    row = REFUSED[case]
    written = dict(row["write"])
    if written.get("holder") is not None:
        written["holder"] = HOLDER | written["holder"]
    if "conditions" in written:
        written["conditions"] = PROOFS
    async with Cluster(kube_api.kubeconfig) as cluster, lease(cluster) as body:
        body = await through(cluster, body, WAYS[row["after"]])
        with pytest.raises(ClusterError, match=row["said"]):
            await to(cluster, body, **written)


@in_loop
async def test_a_gpu_that_the_kubelet_has_let_go_is_reset(kube_api: KubeCluster) -> None:
    again: list[Step] = [
        ("Releasing", {"holder": LET_GO}),
        ("Resetting", {"cycle": 2, "holder": None}),
    ]
    async with Cluster(kube_api.kubeconfig) as cluster, lease(cluster) as body:
        body = await through(cluster, body, [*RELEASING, *again])
        assert body["status"]["phase"] == Phase.RESETTING


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
