"""What the tenancy controller sees of the cluster: objects by watches, and pods that it tries as dry runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from caas.cluster import Cluster, ClusterError, Object
from caas.mirror import Mirror
from gpuclusters.domain.ports import ObjectKind
from gpuclusters.lease.model import GPU_LEASE
from gpuclusters.tenancy.admission import POD_POLICY
from gpuclusters.tenancy.isolation import BASELINE, POLICY, TENANT_LABEL
from gpuclusters.tenancy.model import TenancySpec
from gpuclusters.tenancy.objects import (
    ADMISSION_BINDING,
    ADMISSION_POLICY,
    BASELINE_POLICY,
    DEFAULT_ACCOUNT,
    LIMIT_RANGE,
    LIMIT_RANGE_NAME,
    NAMESPACE,
    NETWORK_POLICY,
    NODE,
    POD,
    RESOURCE_QUOTA,
    ROLE_BINDING,
    RUNTIME_CLASS,
    SERVICE_ACCOUNT,
)
from gpuclusters.tenancy.proof import Evidence, Shared, Trials, node_view, trial_pods

CHILDREN: tuple[ObjectKind, ...] = (
    ROLE_BINDING, RESOURCE_QUOTA, LIMIT_RANGE, SERVICE_ACCOUNT, NETWORK_POLICY,
)  # fmt: skip
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
        self.namespaces = Mirror(NAMESPACE, changed=child, labels=TENANT_LABEL)
        self.children = {
            kind: Mirror(kind, changed=child, labels=TENANT_LABEL) for kind in CHILDREN
        }
        self._baseline = Mirror(BASELINE_POLICY, changed=shared, fields=f"metadata.name={BASELINE}")
        self._policies = Mirror(ADMISSION_POLICY, changed=shared)
        self._bindings = Mirror(ADMISSION_BINDING, changed=shared)
        self._classes = Mirror(RUNTIME_CLASS, changed=shared)
        self._nodes = Mirror(NODE, changed=self._node_changed)
        self.leases = Mirror(GPU_LEASE, changed=lambda _body: leaving())
        self._needed = (self.namespaces, *(self.children[kind] for kind in CHILDREN[:4]))
        self._mirrors = (
            self.namespaces, *self.children.values(), self._baseline, self._policies,
            self._bindings, self._classes, self._nodes, self.leases,
        )  # fmt: skip

    async def follow(self, cluster: Cluster) -> None:
        """Keep everything up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for mirror in self._mirrors:
                group.create_task(mirror.follow(cluster))

    async def synced(self) -> None:
        """Wait until everything has been seen once, but no longer than `SYNC_SECONDS`.

        Namespaces and what is in them are waited for however long it takes: without them
        everything would be made again.
        """
        for mirror in self._needed:
            await mirror.synced.wait()
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                for mirror in self._mirrors:
                    await mirror.synced.wait()
        except TimeoutError:
            return

    def evidence(self, spec: TenancySpec, trials: Trials | None) -> Evidence:
        """What is known of one tenant."""
        home = spec.namespace
        return Evidence(
            namespace=self.namespaces.get(home),
            quota=self.children[RESOURCE_QUOTA].get(spec.quota.name, home),
            limit_range=self.children[LIMIT_RANGE].get(LIMIT_RANGE_NAME, home),
            service_account=self.children[SERVICE_ACCOUNT].get(DEFAULT_ACCOUNT, home),
            roles=self.children[ROLE_BINDING].within(home),
            network_policy=self.children[NETWORK_POLICY].get(POLICY, home),
            shared=Shared(
                baseline=self._baseline.get(BASELINE),
                admission_policies=self._policies.within(),
                admission_bindings=self._bindings.within(),
                nodes=list(self._nodes.all()),
                runtime_classes=self._classes.within(),
            ),
            trials=trials,
        )

    def rules_version(self) -> tuple[Any, ...]:
        """Changes whenever a pod that was tried might now be judged otherwise."""
        return tuple(
            (found["metadata"]["uid"], found["metadata"].get("generation"))
            for found in (self._policies.get(POD_POLICY), self._bindings.get(POD_POLICY))
            if found
        )

    def _node_changed(self, _body: Object) -> None:
        # Kubelets report every few seconds; most of it concerns nobody.
        seen = {name: node_view(node) for name, node in self._nodes.within().items()}
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
