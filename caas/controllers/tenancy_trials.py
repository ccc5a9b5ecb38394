"""Tries pods on the server as dry runs, and remembers for a while what was proven by them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from caas.cluster import Cluster, ClusterError
from gpuclusters.tenancy.model import TenancySpec
from gpuclusters.tenancy.objects import POD
from gpuclusters.tenancy.proof import Trials, trial_pods

VALID_SECONDS = 300.0
"""How long a proof by trial is believed where nothing seems to have changed."""


@dataclass(slots=True)
class _Tried:
    key: object
    failures: int = 0
    trials: Trials | None = None
    at: float = 0.0


class Trier:
    """Of all tenants; three requests for each, sent at once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._tried: dict[str, _Tried] = {}

    def known(self, tenant: str, key: object) -> Trials | None:
        """What proved the isolation of late, None if that is not known.

        Args:
            tenant: whose.
            key: changes whenever a pod might be judged otherwise.
        """
        found = self._tried.get(tenant)
        if found is None or found.key != key or time.monotonic() - found.at >= VALID_SECONDS:
            return None
        return found.trials

    async def ask(self, spec: TenancySpec) -> Trials:
        """Try the pods now.

        Raises:
            ClusterError: the server did not come to judge a pod.
        """
        pods = trial_pods(spec)
        answers = await asyncio.gather(*(self._refusal(pod) for pod in pods.values()))
        return Trials(**dict(zip(pods, answers, strict=True)))

    def proved(self, tenant: str, key: object, trials: Trials) -> None:
        """These trials proved it."""
        self._tried[tenant] = _Tried(key, trials=trials, at=time.monotonic())

    def failed(self, tenant: str, key: object) -> None:
        """Trials did not prove it."""
        found = self._tried.get(tenant)
        if found is None or found.key != key:
            found = self._tried[tenant] = _Tried(key)
        found.trials = None
        found.failures += 1

    def failures(self, tenant: str) -> int:
        """How often in a row trials did not prove it."""
        found = self._tried.get(tenant)
        return found.failures if found else 0

    def forget(self, tenant: str) -> None:
        """It is gone."""
        self._tried.pop(tenant, None)

    async def _refusal(self, pod: Mapping[str, Any]) -> str | None:
        try:
            await self._cluster.create(POD, pod, dry_run=True)
        except ClusterError as error:
            unable = error.status in (0, 401, 429) or error.status >= 500
            if unable or error.ungranted:
                raise
            return str(error)
        return None
