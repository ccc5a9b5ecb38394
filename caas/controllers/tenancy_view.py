"""What the tenancy controller sees of the cluster: objects by watches, and pods that it tries as dry runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from caas.cluster import Cluster, ClusterError, Object
from caas.mirror import Mirror
from gpuclusters.core.ports import ObjectKind
from gpuclusters.lease.model import GPU_LEASE
from gpuclusters.tenancy.admission import POD_POLICY
from gpuclusters.tenancy.isolation import BASELINE, TENANT_LABEL
from gpuclusters.tenancy.model import TenancySpec
from gpuclusters.tenancy.objects import (
    ADMISSION_BINDING,
    ADMISSION_POLICY,
    BASELINE_POLICY,
    LIMIT_RANGE,
    NAMESPACE,
    NETWORK_POLICY,
    NODE,
    POD,
    RESOURCE_QUOTA,
    ROLE_BINDING,
    RUNTIME_CLASS,
    SERVICE_ACCOUNT,
)
from gpuclusters.tenancy.proof import Trials, node_view, trial_pods

NEEDED = (NAMESPACE, ROLE_BINDING, RESOURCE_QUOTA, LIMIT_RANGE, SERVICE_ACCOUNT)
"""Without these everything would be made again."""
TENANTS = (*NEEDED, NETWORK_POLICY)
"""Kinds of objects that carry their tenant's label."""
SYNC_SECONDS = 20.0
"""A kind that cannot be read by then is taken for empty, and its tenancies say what is missing."""
TRIALS_VALID_SECONDS = 300.0
"""How long a proof by trial is believed where nothing seems to have changed."""


class TenancyView:
    """Mirrors of every kind that matters; tells which tenant a change concerns."""

    def __init__(
        self,
        tenant: Callable[[str], None],
        everybody: Callable[[], None],
        leaving: Callable[[], None],
    ) -> None:
        def child(body: Object) -> None:
            if name := (body["metadata"].get("labels") or {}).get(TENANT_LABEL):
                tenant(name)

        def shared(_body: Object) -> None:
            everybody()

        self._everybody = everybody
        self._nodes_seen: Mapping[str, object] = {}
        self.mirrors: Mapping[ObjectKind, Mirror] = {
            **{kind: Mirror(kind, changed=child, labels=TENANT_LABEL) for kind in TENANTS},
            BASELINE_POLICY: Mirror(
                BASELINE_POLICY, changed=shared, fields=f"metadata.name={BASELINE}"
            ),
            **{
                kind: Mirror(kind, changed=shared)
                for kind in (ADMISSION_POLICY, ADMISSION_BINDING, RUNTIME_CLASS)
            },
            NODE: Mirror(NODE, changed=self._node_changed),
            GPU_LEASE: Mirror(GPU_LEASE, changed=lambda _body: leaving()),
        }

    async def follow(self, cluster: Cluster) -> None:
        """Keep everything up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for mirror in self.mirrors.values():
                group.create_task(mirror.follow(cluster))

    async def synced(self) -> None:
        """Wait until everything has been seen once, but no longer than `SYNC_SECONDS`.

        Namespaces and what is in them are waited for however long it takes.
        """
        for kind in NEEDED:
            await self.mirrors[kind].synced.wait()
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                for mirror in self.mirrors.values():
                    await mirror.synced.wait()
        except TimeoutError:
            return

    def get(self, kind: ObjectKind, name: str, namespace: str = "") -> Object | None:
        """An object as last seen."""
        return self.mirrors[kind].get(name, namespace)

    def list(self, kind: ObjectKind) -> Sequence[Object]:
        """All that were seen of a kind."""
        return list(self.mirrors[kind].all())

    def rules_version(self) -> tuple[Any, ...]:
        """Changes whenever a pod that was tried might now be judged otherwise."""
        return tuple(
            (found["metadata"]["uid"], found["metadata"].get("generation"))
            for kind in (ADMISSION_POLICY, ADMISSION_BINDING)
            if (found := self.get(kind, POD_POLICY))
        )

    def _node_changed(self, _body: Object) -> None:
        # Kubelets report every few seconds; most of it concerns nobody.
        seen = {name: node_view(node) for name, node in self.mirrors[NODE].within().items()}
        if seen != self._nodes_seen:
            self._nodes_seen = seen
            self._everybody()


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of the last trial of a tenant's pods.

    `key` changes whenever a pod might be judged otherwise; `trials` are those that proved the isolation;
    `failures` is how often in a row they did not.
    """

    key: object = None
    trials: Trials | None = None
    failures: int = 0
    _at: float = field(default_factory=time.monotonic)

    def of(self, key: object) -> Trials | None:
        """What proved the isolation of late, None if that is not known."""
        fresh = self.key == key and time.monotonic() - self._at < TRIALS_VALID_SECONDS
        return self.trials if fresh else None


async def tried(cluster: Cluster, spec: TenancySpec) -> Trials:
    """Try the pods now, all at once.

    Raises:
        ClusterError: the server did not come to judge a pod.
    """

    async def refusal(pod: Mapping[str, Any]) -> str | None:
        try:
            await cluster.create(POD, pod, dry_run=True)
        except ClusterError as error:
            unable = error.status in (0, 401, 429) or error.status >= 500
            if unable or error.ungranted:
                raise
            return str(error)
        return None

    pods = trial_pods(spec)
    answers = await asyncio.gather(*map(refusal, pods.values()))
    return Trials(**dict(zip(pods, answers, strict=True)))
