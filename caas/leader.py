"""Who of several copies of a program acts: the holder of a coordination.k8s.io Lease.

Nobody's wall clock is trusted. Whoever wants to lead takes over only after the record has not changed for its
whole duration by a clock of its own. Whoever leads counts from *before* it asked for the last renewal that
succeeded, and stops well before others may begin. `check()` stands before every write and effect.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any

from caas.cluster import Cluster, ClusterError, ConflictError, stamp
from gpuclusters.core.ports import ObjectKind

LEASE = ObjectKind("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)

DURATION_SECONDS = 15.0
"""Others take over when the record has not changed for so long."""
VALID_SECONDS = 10.0
"""The leader stops when its last renewal was begun longer ago."""
RENEW_SECONDS = 2.0
_LOG = logging.getLogger(__name__)


class NotLeadingError(Exception):
    """This copy does not lead (any more), and must not act."""


def clock() -> float:
    """Seconds that never jump, and that pass while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass
class Leader:
    cluster: Cluster
    namespace: str
    name: str
    identity: str
    _: KW_ONLY
    duration: float = DURATION_SECONDS
    valid: float = VALID_SECONDS
    renew: float = RENEW_SECONDS
    clock: Callable[[], float] = clock
    _body: dict[str, Any] | None = None
    _seen: tuple[str, float] | None = None
    _until: float = float("-inf")

    def __post_init__(self) -> None:
        if not self.renew < self.valid < self.duration:
            raise ValueError(
                "renewal must be more often than validity, which ends before others begin"
            )

    @property
    def leads(self) -> bool:
        return self.clock() < self._until

    def check(self) -> None:
        """`NotLeadingError` unless this copy leads."""
        if not self.leads:
            raise NotLeadingError(f"{self.identity} does not lead")

    async def acquire(self) -> None:
        while not await self._try():
            await asyncio.sleep(self.renew * random.uniform(0.75, 1.25))  # noqa: S311
        _LOG.info("leading", extra={"fields": {"identity": self.identity}})

    async def keep(self) -> None:
        """Renew until leadership is lost, then return. Whoever called must stop acting at once."""
        with suppress(TimeoutError):
            while (left := self._until - self.clock()) > 0:
                await asyncio.sleep(min(self.renew, left))
                async with asyncio.timeout(max(0.0, self._until - self.clock())):
                    if not await self._try():
                        break
        self._until = float("-inf")
        _LOG.error("leadership lost", extra={"fields": {"identity": self.identity}})

    async def release(self) -> None:
        """Let others begin at once; only after everything that acts has ended."""
        if not self.leads or self._body is None:
            return
        self._until = float("-inf")
        body = {**self._body, "spec": {**self._body["spec"], "holderIdentity": ""}}
        try:
            await self._replace(body)
        except ClusterError as error:
            _LOG.warning("leadership not released: %s", error)

    async def _try(self) -> bool:
        """Renew, or take over if nobody leads; whether this copy leads. Errors leave things as they are."""
        asked = self.clock()
        try:
            body = await self.cluster.get(LEASE, self.name, self.namespace)
            if body is None:
                self._body = await self.cluster.create(LEASE, self._record({}, None))
                self._until = asked + self.valid
                return True
            if not self._may_take(body):
                self._until = float("-inf")
                return False
            self._body = await self._replace(self._record(body["metadata"], body.get("spec")))
        except ConflictError:
            self._until = float("-inf")
            return False
        except ClusterError as error:
            _LOG.warning("leader election: %s", error)
            return self.leads
        # Counted from before the request: that it was granted later does not make it last longer.
        self._until = asked + self.valid
        return self.leads

    def _may_take(self, body: Mapping[str, Any]) -> bool:
        holder = (body.get("spec") or {}).get("holderIdentity") or ""
        if not holder or (holder == self.identity and self._body is not None and self.leads):
            return True
        # Somebody else's, or our own writing that came too late: waited for as anybody's.
        version = body["metadata"]["resourceVersion"]
        now = self.clock()
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
            return False
        stated = float((body.get("spec") or {}).get("leaseDurationSeconds") or 0)
        return now - self._seen[1] >= max(stated, self.duration)

    def _record(
        self, metadata: Mapping[str, Any], before: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        now = stamp()
        spec = dict(before or {})
        if spec.get("holderIdentity") != self.identity:
            transitions = int(spec.get("leaseTransitions") or 0) + 1
            spec |= {"acquireTime": now, "leaseTransitions": transitions}
        spec |= {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self.duration)),
            "renewTime": now,
        }
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {**metadata, "name": self.name, "namespace": self.namespace},
            "spec": spec,
        }

    async def _replace(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Compare and swap: a patch that names the version it replaces."""
        version = {"resourceVersion": body["metadata"]["resourceVersion"]}
        patch = {"metadata": version, "spec": body["spec"]}
        return await self.cluster.patch(LEASE, self.name, self.namespace, patch)
