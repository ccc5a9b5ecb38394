"""Who of several copies of a program acts: the holder of a coordination.k8s.io Lease.

Nobody's wall clock is trusted. Whoever wants to lead watches the record with a clock of its own, and
takes over only after it has not changed for its whole duration. Whoever leads counts from *before* it
asked for the last renewal that succeeded, and stops acting well before others may begin; its clock goes on
while the machine sleeps. `check()` stands before every write and effect.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from caas.cluster import Cluster, ClusterError, ConflictError
from gpuclusters.domain.ports import ObjectKind

LEASE = ObjectKind("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)

DURATION_SECONDS = 15.0
"""Others take over when the record has not changed for so long."""
VALID_SECONDS = 10.0
"""The leader stops when its last renewal was begun longer ago."""
RENEW_SECONDS = 2.0
_LOG = logging.getLogger(__name__)

Clock = Callable[[], float]


class NotLeadingError(Exception):
    """This copy does not lead (any more), and must not act."""


def clock() -> float:
    """Seconds that never jump, and that pass while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leader:
    """One copy's part in the election."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str,
        identity: str,
        *,
        duration: float = DURATION_SECONDS,
        valid: float = VALID_SECONDS,
        renew: float = RENEW_SECONDS,
        clock: Clock = clock,
    ) -> None:
        if not renew < valid < duration:
            raise ValueError(
                "renewal must be more often than validity, which must end before others begin"
            )
        self.identity = identity
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._duration = duration
        self._valid = valid
        self._renew = renew
        self._clock = clock
        self._body: dict[str, Any] | None = None
        self._seen: tuple[str, float] | None = None
        self._until = float("-inf")

    @property
    def leads(self) -> bool:
        """Whether this copy may act at this moment."""
        return self._clock() < self._until

    def check(self) -> None:
        """Do nothing if this copy leads.

        Raises:
            NotLeadingError: it does not.
        """
        if not self.leads:
            raise NotLeadingError(f"{self.identity} does not lead")

    async def acquire(self) -> None:
        """Wait until this copy leads."""
        while not await self._try():
            await asyncio.sleep(self._renew * random.uniform(0.75, 1.25))  # noqa: S311
        _LOG.info("leading", extra={"fields": {"identity": self.identity}})

    async def keep(self) -> None:
        """Renew until leadership is lost, then return. Whoever called must stop acting at once."""
        while True:
            left = self._until - self._clock()
            if left <= 0:
                break
            await asyncio.sleep(min(self._renew, left))
            try:
                async with asyncio.timeout(max(0.0, self._until - self._clock())):
                    if not await self._try():
                        break
            except TimeoutError:
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
        asked = self._clock()
        try:
            body = await self._cluster.get(LEASE, self._name, self._namespace)
            if body is None:
                self._body = await self._cluster.create(LEASE, self._record({}, None))
                self._until = asked + self._valid
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
        self._until = asked + self._valid
        return self.leads

    def _may_take(self, body: Mapping[str, Any]) -> bool:
        holder = (body.get("spec") or {}).get("holderIdentity") or ""
        if not holder:
            return True
        if holder == self.identity and self._body is not None and self.leads:
            return True
        # Somebody else's, or our own writing that came too late: waited for as anybody's.
        version = body["metadata"]["resourceVersion"]
        now = self._clock()
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
            return False
        stated = float((body.get("spec") or {}).get("leaseDurationSeconds") or 0)
        return now - self._seen[1] >= max(stated, self._duration)

    def _record(
        self, metadata: Mapping[str, Any], before: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = dict(before or {})
        if spec.get("holderIdentity") != self.identity:
            transitions = int(spec.get("leaseTransitions") or 0) + 1
            spec |= {"acquireTime": now, "leaseTransitions": transitions}
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {**metadata, "name": self._name, "namespace": self._namespace},
            "spec": spec
            | {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": max(1, round(self._duration)),
                "renewTime": now,
            },
        }

    async def _replace(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Compare and swap: a patch that names the version it replaces."""
        return await self._cluster.patch(
            LEASE,
            self._name,
            self._namespace,
            {
                "metadata": {"resourceVersion": body["metadata"]["resourceVersion"]},
                "spec": body["spec"],
            },
        )
