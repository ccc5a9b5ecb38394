"""How long containers take to start, measured from the moment their GPUs were leased to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from caas import metrics
from caas.controllers.lease_pods import gpus_of, is_gated
from gpuclusters.container_api.container import LEASE_ANNOTATION

SCHEDULED, SANDBOX, STARTED = "scheduled", "sandbox", "started"


class BootTimes:
    """Watches pods from the gate of the leases to the running container.

    Only what was seen at the gate is measured: after a restart of the controllers nobody knows when a
    pod that is under way got its GPUs.
    """

    def __init__(self, gpu_resource: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._resource = gpu_resource
        self._clock = clock
        self._leased: dict[str, float | None] = {}
        self._missing: dict[str, set[str]] = {}

    def observe(self, body: Mapping[str, Any]) -> None:
        """A pod as the API server has it."""
        uid = body["metadata"]["uid"]
        if is_gated(body):
            self._leased.setdefault(uid, None)
            return
        if uid not in self._leased:
            return
        if LEASE_ANNOTATION not in (body["metadata"].get("annotations") or {}):
            self.forget(uid)
            return
        leased = self._leased[uid]
        if leased is None:
            leased = self._leased[uid] = self._clock()
            self._missing[uid] = {SCHEDULED, SANDBOX, STARTED}
        for step in self._missing[uid].intersection(reached(body)):
            gpus = str(gpus_of(body, self._resource))
            metrics.BOOT_SECONDS.labels(step, gpus).observe(self._clock() - leased)
            self._missing[uid].discard(step)
        if not self._missing[uid]:
            self.forget(uid)

    def forget(self, uid: str) -> None:
        """The pod is gone, or needs no more attention."""
        self._leased.pop(uid, None)
        self._missing.pop(uid, None)


def reached(body: Mapping[str, Any]) -> Iterator[str]:
    """The steps that the pod has behind it."""
    status = body.get("status") or {}
    true = {c["type"] for c in status.get("conditions") or () if c["status"] == "True"}
    if "PodScheduled" in true:
        yield SCHEDULED
    containers = status.get("containerStatuses") or ()
    # An image that ends at once has been started all the same.
    started = any({"running", "terminated"} & set(c.get("state") or ()) for c in containers)
    if "PodReadyToStartContainers" in true or started:
        yield SANDBOX
    if started:
        yield STARTED
