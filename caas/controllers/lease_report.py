"""What is said about leases: events for operators and tenants, metrics for everybody."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from caas import metrics
from caas.controllers.events import Recorder
from gpuclusters.lease.model import Phase
from gpuclusters.lease.plan import Change

_LOG = logging.getLogger(__name__)


class LeaseReport:
    """Tells of changes on one host."""

    def __init__(self, host: str, recorder: Recorder) -> None:
        self._host = host
        self._recorder = recorder
        self._phases: dict[int, Phase] = {}
        self._entered: dict[int, float] = {}
        self._released: dict[int, float] = {}
        self._closed = False

    def seen(self, module: int, phase: Phase | None) -> None:
        """The GPU is in this phase; None: its lease is gone."""
        before = self._phases.get(module)
        if before is phase or self._closed:
            return
        if before is not None:
            metrics.LEASES.labels(before, self._host).dec()
        if phase is None:
            self._phases.pop(module, None)
        else:
            self._phases[module] = phase
            metrics.LEASES.labels(phase, self._host).inc()

    def close(self) -> None:
        """Nothing more is said about the phases on this host, whatever is still seen of it.

        The task that takes over counts all of its GPUs anew.
        """
        for module in list(self._phases):
            self.seen(module, None)
        self._closed = True

    def changed(self, change: Change, body: Mapping[str, Any]) -> None:
        """A change was stored.

        Args:
            change: the change.
            body: the object as it is now.
        """
        before, after = change.before, change.after
        module, now = before.module, time.monotonic()
        if before.phase is after.phase:
            return
        metrics.LEASE_TRANSITIONS.labels(before.phase, after.phase, self._host).inc()
        if (entered := self._entered.get(module)) is not None:
            metrics.LEASE_PHASE_SECONDS.labels(before.phase).observe(now - entered)
        self._entered[module] = now
        if after.phase is Phase.RELEASING:
            self._released[module] = now
        released = self._released.get(module)
        if after.phase in (Phase.FREE, Phase.QUARANTINED):
            self._released.pop(module, None)
        if after.phase is Phase.FREE and released is not None:
            metrics.HANDOVER_SECONDS.observe(now - released)
        quarantined = after.phase is Phase.QUARANTINED
        if quarantined:
            metrics.QUARANTINED.labels(after.reason).inc()
        self._recorder.note(
            body,
            reason=after.reason or after.phase.value,
            action=f"Enter{after.phase.value}",
            note=change.why,
            kind="Warning" if quarantined else "Normal",
        )
        _LOG.log(
            logging.WARNING if quarantined else logging.INFO,
            "lease %s: %s to %s",
            body["metadata"]["name"],
            before.phase.value,
            after.phase.value,
            extra={"fields": {"host": self._host, "gpu": module, "why": change.why}},
        )

    def admitted(self, pod: Mapping[str, Any], lease: str, gpus: int) -> None:
        """A pod was let go to its GPUs."""
        created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()
        metrics.GRANT_SECONDS.observe(max(0.0, time.time() - created))
        note = f"{gpus} GPU{'s' if gpus > 1 else ''} leased; the container may start"
        self._recorder.note(pod, reason="Leased", action="Admit", note=note)
        _LOG.info(
            "pod admitted", extra={"fields": {"pod": pod["metadata"]["name"], "lease": lease}}
        )
