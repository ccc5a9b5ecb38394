"""GPULease objects of one host: read into leases, written back as compare-and-swap, and what is told of them.

Deadlines are stored by the wall clock and obeyed by one that never jumps. A phase that another process began
gets what is left of its time, but at least a quarter: no absence or set clock may by itself close every GPU.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from caas import metrics
from caas.cluster import seconds_of, stamp, version_of
from caas.controllers.controller import EventType, Recorder
from gpuclusters.core.custom_resource import Condition
from gpuclusters.device_plugin.decide import is_disputed
from gpuclusters.lease.board import Lease, Limits
from gpuclusters.lease.model import (
    RECHECK_ANNOTATION,
    ConditionType,
    GPULeaseSpec,
    GPULeaseStatus,
    Phase,
)
from gpuclusters.lease.plan import Change

LEAST_SHARE = 0.25
_LOG = logging.getLogger(__name__)
_SAME = ("phase", "cycle", "holder", "reason", "message", "recheck", "recheck_cycle")
"""What a lease and the status of its object call the same."""
_Stay = tuple[str, int, int, Phase, bool]
_stamp = partial(stamp, timespec="milliseconds")


class LeaseBook:
    """The newest known objects of one host's GPUs."""

    def __init__(self, limits: Limits, wall: Callable[[], float] = time.time) -> None:
        self._limits = limits
        self._wall = wall
        self._bodies: dict[int, dict[str, Any]] = {}
        self._deadlines: dict[_Stay, float | None] = {}

    def body(self, module: int) -> dict[str, Any] | None:
        return self._bodies.get(module)

    def offer(self, body: dict[str, Any], now: float) -> Lease | None:
        """Take in an object, at a time of the deadlines' clock. None if it is old, or has no status."""
        module = GPULeaseSpec.model_validate(body["spec"]).module
        known = self._bodies.get(module)
        if known is not None and version_of(known) > version_of(body):
            return None
        self._bodies[module] = body
        if not body.get("status"):
            return None
        return self._lease(body, module, now)

    def forget(self, module: int) -> None:
        self._bodies.pop(module, None)

    def first(self, body: dict[str, Any]) -> dict[str, Any]:
        """The object of a new GPU with its first status: nobody knows who had it."""
        wall = self._wall()
        status = GPULeaseStatus(
            phase=Phase.RESETTING,
            since=_stamp(wall),
            deadline=_stamp(wall + self._limits.resetting),
            cycle=1,
            observed_generation=body["metadata"].get("generation"),
            conditions=_conditions((), frozenset(), _stamp(wall)),
        )
        return {**body, "status": status.document()}

    def next(self, change: Change, now: float) -> dict[str, Any]:
        """The object with the status after a change, to be stored in place of the one that was read."""
        body = self._bodies[change.before.module]
        before = GPULeaseStatus.model_validate(body["status"])
        wall = self._wall()
        lease = change.after
        moved = lease.phase is not before.phase
        self._deadlines[_stay(body, lease)] = lease.deadline
        said = {name: getattr(lease, name) for name in _SAME} | {"message": lease.message[:1024]}
        status = GPULeaseStatus(
            since=_stamp(wall) if moved else before.since,
            deadline=None if lease.deadline is None else _stamp(wall + lease.deadline - now),
            last_tenant=lease.last_tenant or None,
            observed_generation=body["metadata"].get("generation"),
            conditions=_conditions(before.conditions, lease.shown, _stamp(wall)),
            **said,
        )
        return {**body, "status": status.document()}

    def _lease(self, body: Mapping[str, Any], module: int, now: float) -> Lease:
        status = GPULeaseStatus.model_validate(body["status"])
        annotations = body["metadata"].get("annotations") or {}
        lease = Lease(
            module=module,
            shown=frozenset(
                ConditionType(c.type)
                for c in status.conditions
                if c.status == "True" and c.type in set(ConditionType)
            ),
            recheck_asked=str(annotations.get(RECHECK_ANNOTATION, ""))[:256],
            disputed=is_disputed(status),
            last_tenant=status.last_tenant or "",
            **{name: getattr(status, name) for name in _SAME},
        )
        stay = _stay(body, lease)
        # None where it stood still: the write that said so may not have come through.
        if self._deadlines.get(stay) is None:
            self._deadlines = {k: v for k, v in self._deadlines.items() if k[1] != module}
            self._deadlines[stay] = self._remaining(status, now)
        deadline = None if status.deadline is None else self._deadlines[stay]
        return replace(lease, deadline=deadline)

    def _remaining(self, status: GPULeaseStatus, now: float) -> float | None:
        if status.deadline is None:
            return None
        limit = self._limits.of(status.phase) or self._limits.admission
        left = seconds_of(status.deadline) - self._wall()
        return now + min(max(left, limit * LEAST_SHARE), limit)


class LeaseReport:
    """Tells of changes on one host: events for operators and tenants, metrics for everybody."""

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
        """Say nothing more about the phases on this host: the task that takes over counts its GPUs anew."""
        for module in list(self._phases):
            self.seen(module, None)
        self._closed = True

    def changed(self, change: Change, body: Mapping[str, Any]) -> None:
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
        phase, why = after.phase.value, change.why
        bad = after.phase is Phase.QUARANTINED
        if bad:
            metrics.QUARANTINED.labels(after.reason).inc()
        kind: EventType = "Warning" if bad else "Normal"
        self._recorder.note(body, after.reason or phase, f"Enter{phase}", why, kind)
        level, name = logging.WARNING if bad else logging.INFO, body["metadata"]["name"]
        fields = {"host": self._host, "gpu": module, "why": why}
        _LOG.log(
            level, "lease %s: %s to %s", name, before.phase.value, phase, extra={"fields": fields}
        )

    def admitted(self, pod: Mapping[str, Any], lease: str, gpus: int) -> None:
        metadata = pod["metadata"]
        created = seconds_of(metadata["creationTimestamp"])
        metrics.GRANT_SECONDS.observe(max(0.0, time.time() - created))
        note = f"{gpus} GPU{'s' if gpus > 1 else ''} leased; the container may start"
        self._recorder.note(pod, "Leased", "Admit", note)
        _LOG.info("pod admitted", extra={"fields": {"pod": metadata["name"], "lease": lease}})


def _conditions(
    before: tuple[Condition, ...], shown: frozenset[ConditionType], stamp: str
) -> tuple[Condition, ...]:
    known = {condition.type: condition for condition in before}
    # What others say about the GPU, such as the device plugin, is theirs.
    found = [condition for condition in before if condition.type not in set(ConditionType)]
    for type_ in reversed(ConditionType):
        new = Condition(
            type=type_.value,
            status="True" if type_ in shown else "False",
            reason="Shown" if type_ in shown else "NotShown",
            last_transition_time=stamp,
        )
        old = known.get(type_)
        found.insert(0, old if old is not None and old.status == new.status else new)
    return tuple(found)


def _stay(body: Mapping[str, Any], lease: Lease) -> _Stay:
    admitted = lease.holder is not None and lease.holder.admitted
    return (body["metadata"]["uid"], lease.module, lease.cycle, lease.phase, admitted)
