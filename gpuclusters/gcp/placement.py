"""Keeping one machine on Google Cloud: found by its name in every zone, or made in the first that has room.

Reads, then acts, so that an interrupted step can be run again; a machine that exists stays where it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from gpuclusters.core.converge import Clock, Reporter, poll
from gpuclusters.core.finding import Finding, Level, refused
from gpuclusters.core.finding import Refused as RefusedError
from gpuclusters.core.model import Strict
from gpuclusters.gcp import model

if TYPE_CHECKING:
    from gpuclusters.gcp.api import GoogleCompute

RUNNING = "RUNNING"
STOPPED = ("TERMINATED", "SUSPENDED", "STOPPED")
DELETE_SECONDS = 600.0
POLL_SECONDS = 2.0
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine that is wanted, and where it is kept."""

    wanted: model.GcpMachineInputs
    compute: GoogleCompute
    clock: Clock
    reporter: Reporter

    def ensure(self) -> model.Instance:
        found = self.locate()
        zone = self._make() if found is None else found.zone
        if found is not None:
            self._bring_up(found)
        live = self._wait(zone, (RUNNING, *STOPPED))
        if live.status != RUNNING:
            raise self._refused("gcp.taken-back", live=live)
        return self._settle(live)

    def locate(self) -> model.Instance | None:
        found = self.compute.find(self.wanted.project, self.wanted.name)
        for one in found:
            label = one.labels.get(model.OWNER_LABEL)
            if label != self.wanted.owner:
                whose = f"belongs to {label}" if label else f"has no label {model.OWNER_LABEL}"
                raise self._refused("gcp.other-owner", zone=one.zone, whose=whose)
        if len(found) > 1:
            zones = " and in ".join(one.zone for one in found)
            raise self._refused("gcp.two-machines", zones=zones)
        return found[0] if found else None

    def remove(self) -> None:
        """Delete the machine; absent is fine, and one of somebody else is left alone."""
        project = self.wanted.project
        for one in self.compute.find(project, self.wanted.name):
            if one.labels.get(model.OWNER_LABEL) != self.wanted.owner:
                continue
            if one.deletion_protection:
                raise self._refused("gcp.deletion-protected", zone=one.zone)
            self.compute.delete(project, one.zone, one.name, DELETE_SECONDS)

    def drift(self, live: model.Instance) -> dict[str, Any]:
        """The inputs that would describe what is live, as far as they can change in place."""
        wanted = self.wanted
        same = sorted(live.tags) == sorted(wanted.tags)
        kept = (k for k in live.labels if k != model.OWNER_LABEL and not k.startswith("goog-"))
        return {
            "labels": {key: live.labels[key] for key in kept},
            "tags": list(wanted.tags if same else live.tags),
            "deletion_protection": live.deletion_protection,
            "machine_type": live.machine_type or wanted.machine_type,
        }

    def _make(self) -> str:
        wanted, said = self.wanted, dict[str, model.ApiError]()
        seconds = wanted.create_timeout_seconds
        for zone in wanted.zones:
            try:
                self.compute.insert(wanted.project, zone, model.body(wanted, zone), seconds)
            except model.ApiError as error:
                said[zone] = error
                if error.kind is model.Refused.OTHER:
                    break  # the next zone would say the same
                line = f"{wanted.name}: {zone} has none ({error.kind.value}); trying the next"
                self.reporter.note(line)
            else:
                return zone
        reasons = "; ".join(f"{z}: {one.reason[:_LONGEST_REASON]}" for z, one in said.items())
        kinds = {one.kind for one in said.values()}
        case = next((kind.value for kind in _NOWHERE if kind in kinds), "")
        raise self._refused("gcp.no-zone", case, reasons=reasons)

    def _bring_up(self, found: model.Instance) -> None:
        if found.status == "STOPPING":
            found = self._wait(found.zone, (*STOPPED, RUNNING))
        if found.status not in STOPPED:
            return
        project, seconds = self.wanted.project, self.wanted.create_timeout_seconds
        try:
            self.compute.start(project, found.zone, found.name, seconds)
        except model.ApiError as error:
            raise self._refused("gcp.not-starting", zone=found.zone, error=error) from error

    def _wait(self, zone: str, ends: Sequence[str]) -> model.Instance:
        # One machine in one zone: asking all zones is dear, and a hundred machines may wait side by side.
        seconds, seen = self.wanted.create_timeout_seconds, list[model.Instance]()

        def look() -> Sequence[Finding]:
            live = self.compute.get(self.wanted.project, zone, self.wanted.name)
            if live is not None and live.status in ends:
                seen.append(live)
                return ()
            status = "is gone" if live is None else f"is {live.status}"
            return (Finding("gcp.not-running", f"it {status}", level=Level.REPAIR),)

        if found := poll(look, self._target, seconds, POLL_SECONDS, self.clock, self.reporter):
            raise self._refused("gcp.not-running", found=found[0].problem, seconds=seconds)
        return seen[0]

    def _settle(self, live: model.Instance) -> model.Instance:
        """Bring what can change in place to what is wanted."""
        wanted, compute = self.wanted, self.compute
        kept = {key: value for key, value in live.labels.items() if key.startswith("goog-")}
        labels = {**kept, **wanted.all_labels}
        if dict(live.labels) != labels:
            compute.set_labels(wanted.project, live, labels)
        if sorted(live.tags) != sorted(wanted.tags):
            compute.set_tags(wanted.project, live, wanted.tags)
        if live.deletion_protection is not wanted.deletion_protection:
            compute.set_deletion_protection(wanted.project, live, wanted.deletion_protection)
        return compute.get(wanted.project, live.zone, live.name) or live

    @property
    def _target(self) -> str:
        return f"machine {self.wanted.name} in project {self.wanted.project}"

    def _refused(self, code: str, case: str = "", **values: Any) -> RefusedError:
        return refused(self._target, code, case=case, **values)


_NOWHERE = (model.Refused.OTHER, model.Refused.QUOTA)
"""What decides what is to be done where any zone said so: the first that one did."""


class GcpQuotaInputs(Strict):
    """The machines of a cluster and what each of them counts for."""

    project: str
    region: str
    owner: str
    machines: Annotated[dict[str, dict[str, float]], Field(min_length=1)]
    """By name on Google Cloud: amounts by metric."""
    google: model.GoogleAccess = model.GoogleAccess()

    @property
    def natural_id(self) -> str:
        return f"{self.project}/{self.region}/{self.owner}/quota"


def require(
    wanted: GcpQuotaInputs, existing: Collection[str], quotas: Mapping[str, model.Quota]
) -> dict[str, float]:
    """What the machines that are missing count for together; `Refused` names every metric that is short."""
    missing = [name for name in wanted.machines if name not in existing]
    total: dict[str, float] = defaultdict(float)
    for metric, amount in (item for name in missing for item in wanted.machines[name].items()):
        total[metric] += amount
    short = [
        f"{metric} needs {amount:g} more and {quota.free:g} of {quota.limit:g} are free"
        for metric, amount in sorted(total.items())
        if (quota := quotas.get(metric)) is not None and quota.free < amount
    ]
    if short:
        where, lacks = f"project {wanted.project}, region {wanted.region}", "; ".join(short)
        raise refused(where, "gcp.quota", count=len(missing), lacks=lacks)
    return dict(total)
