"""The end of a tenancy: no new pod, no pod, no GPU that was not scrubbed, no namespace, no Tenancy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from caas.cluster import Cluster
from caas.controllers.tenancy_children import Children
from caas.controllers.tenancy_mirror import Object
from caas.controllers.tenancy_view import TenancyView
from gpuclusters.lease import model as tenancy_leases
from gpuclusters.lease.model import GPU_LEASE
from gpuclusters.tenancy import objects as tenancy_objects
from gpuclusters.tenancy.model import FINALIZER, TENANCY, TenancySpec
from gpuclusters.tenancy.objects import NAMESPACE, POD, RESOURCE_QUOTA

PODS_SECONDS = 1.0
"""Pods of all tenants are not watched for the few that are to go."""
NAMESPACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the deletion waits for."""

    reason: str
    message: str
    leases: Sequence[str]
    """GPUs that are not scrubbed yet."""
    again: float | None
    """After how many seconds to look; None if a watch will tell."""


async def step(
    cluster: Cluster, view: TenancyView, children: Children, spec: TenancySpec, tenancy: Object
) -> Waiting | None:
    """One step further; None when the Tenancy is let go.

    Raises:
        ClusterError: the step failed; it may be repeated.
    """
    if FINALIZER not in (tenancy["metadata"].get("finalizers") or ()):
        return None
    awaited = tenancy_leases.awaited(spec.tenant, await _leases(cluster, view))
    leases = tuple(awaited)
    # A namespace of the same name that is not the tenant's is left alone.
    home = await cluster.get(NAMESPACE, spec.namespace)
    ours = home if home and tenancy_objects.is_ours(home, spec.tenant) else None
    if ours and not ours["metadata"].get("deletionTimestamp"):
        await children.close(spec)
        quota = await cluster.get(RESOURCE_QUOTA, spec.quota.name, spec.namespace)
        enforced = ((quota or {}).get("status") or {}).get("hard") or {}
        if enforced.get("pods") != "0":
            return Waiting("Closing", "new pods are not yet refused", leases, 0.2)
        if pods := await _end_pods(cluster, spec.namespace):
            return Waiting("PodsEnding", f"{pods} pods are ending", leases, PODS_SECONDS)
    if awaited:
        named = ", ".join(f"{name} ({phase})" for name, phase in awaited.items())
        return Waiting("LeasesNotScrubbed", f"GPUs are not yet scrubbed: {named}", leases, None)
    if ours:
        if not ours["metadata"].get("deletionTimestamp"):
            await cluster.delete(NAMESPACE, spec.namespace, uid=ours["metadata"]["uid"])
            return Waiting("NamespaceEnding", tenancy_objects.remains(ours), (), 0.5)
        said = tenancy_objects.remains(ours)
        return Waiting("NamespaceEnding", said, (), NAMESPACE_SECONDS)
    await _let_go(cluster, tenancy)
    return None


async def _leases(cluster: Cluster, view: TenancyView) -> Sequence[Object]:
    if view.leases.synced.is_set():
        return list(view.leases.within().values())
    return await cluster.list(GPU_LEASE)


async def _end_pods(cluster: Cluster, namespace: str) -> int:
    """How many pods are still there; all of them have been told to end."""
    pods = await cluster.list(POD, namespace)
    for pod in pods:
        metadata = pod["metadata"]
        if not metadata.get("deletionTimestamp"):
            await cluster.delete(POD, metadata["name"], namespace, uid=metadata["uid"])
    return len(pods)


async def _let_go(cluster: Cluster, tenancy: Object) -> None:
    metadata = tenancy["metadata"]
    left = [name for name in metadata["finalizers"] if name != FINALIZER]
    patch = {
        "metadata": {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "finalizers": left,
        }
    }
    await cluster.patch(TENANCY, metadata["name"], "", patch)
