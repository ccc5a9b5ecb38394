"""Keeping one machine on Google Cloud: its quota first, then found, or made in the first zone that has room.

Where a machine is, is never decided twice: one that exists is found by its name in every zone and stays, in
whatever order the configuration lists them. Reads, then acts, so that an interrupted step can be run again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from gpuclusters.core.converge import Clock, Reporter, poll
from gpuclusters.core.finding import Finding, Level, refused
from gpuclusters.core.finding import Refused as RefusedError
from gpuclusters.core.model import Strict
from gpuclusters.gcp.machine_types import Provisioning, attachable, machine_type
from gpuclusters.gcp.model import (
    OWNER_LABEL,
    GcpMachineInputs,
    GoogleAccess,
    Instance,
    Quota,
    Refused,
    ZoneRefusal,
    body,
)

if TYPE_CHECKING:
    from gpuclusters.gcp.api import GoogleCompute

RUNNING = "RUNNING"
STOPPED = ("TERMINATED", "SUSPENDED", "STOPPED")
DELETE_SECONDS = 600.0
POLL_SECONDS = 2.0
_LONGEST_REASON = 300


def ensure(
    wanted: GcpMachineInputs, compute: GoogleCompute, clock: Clock, reporter: Reporter
) -> Instance:
    """The machine, running: found, started or made.

    Raises:
        Refused: it belongs to somebody else, exists twice, or no zone can make it.
        AdapterError: the API cannot be reached or says no.
    """
    found = locate(wanted, compute)
    if found is None:
        zone = _make(wanted, compute, reporter)
    else:
        zone = found.zone
        _bring_up(wanted, found, compute, clock, reporter)
    return _settle(wanted, _wait_running(wanted, zone, compute, clock, reporter), compute)


def locate(wanted: GcpMachineInputs, compute: GoogleCompute) -> Instance | None:
    """The machine where it is.

    Raises:
        Refused: one of that name is not ours, or there are two.
    """
    found = compute.find(wanted.project, wanted.name)
    place = _place(wanted)
    foreign = [one for one in found if one.labels.get(OWNER_LABEL) != wanted.owner]
    if foreign:
        label = foreign[0].labels.get(OWNER_LABEL)
        whose = f"belongs to {label}" if label else f"has no label {OWNER_LABEL}"
        raise refused(
            place,
            "gcp.other-owner",
            f"there is a machine of that name in {foreign[0].zone}, and it {whose}",
            "give this cluster another name, or delete that machine",
        )
    if len(found) > 1:
        raise refused(
            place,
            "gcp.two-machines",
            f"there are two machines of that name, in {' and in '.join(one.zone for one in found)}",
            "delete the one that is not the node, with `gcloud compute instances delete`",
        )
    return found[0] if found else None


def remove(wanted: GcpMachineInputs, compute: GoogleCompute) -> None:
    """Delete the machine; absent is fine, and one of somebody else is left alone.

    Raises:
        Refused: it is protected.
    """
    for one in compute.find(wanted.project, wanted.name):
        if one.labels.get(OWNER_LABEL) != wanted.owner:
            continue
        if one.deletion_protection:
            raise refused(
                _place(wanted),
                "gcp.deletion-protected",
                f"the machine in {one.zone} is protected against deletion",
                "write deletion-protection: false, run `pulumi up`, then remove it",
            )
        compute.delete(wanted.project, one.zone, one.name, DELETE_SECONDS)


def drift(wanted: GcpMachineInputs, live: Instance) -> dict[str, Any]:
    """The inputs that would describe what is live, as far as they can change in place."""
    labels = {
        key: value
        for key, value in live.labels.items()
        if key != OWNER_LABEL and not key.startswith("goog-")
    }
    return {
        "labels": labels,
        "tags": list(wanted.tags) if sorted(live.tags) == sorted(wanted.tags) else list(live.tags),
        "deletion_protection": live.deletion_protection,
        "machine_type": live.machine_type or wanted.machine_type,
    }


def _make(wanted: GcpMachineInputs, compute: GoogleCompute, reporter: Reporter) -> str:
    """The zone that made it."""
    said: dict[str, ZoneRefusal] = {}
    for zone in wanted.zones:
        try:
            compute.insert(wanted.project, zone, body(wanted, zone), wanted.create_timeout_seconds)
        except ZoneRefusal as error:
            said[zone] = error
            if error.kind is Refused.OTHER:
                break  # the next zone would say the same
            reporter.note(f"{wanted.name}: {zone} has none ({error.kind.value}); trying the next")
        else:
            return zone
    raise _nowhere(wanted, said)


def _nowhere(wanted: GcpMachineInputs, said: Mapping[str, ZoneRefusal]) -> RefusedError:
    reasons = "; ".join(f"{zone}: {one.message[:_LONGEST_REASON]}" for zone, one in said.items())
    kinds = {one.kind for one in said.values()}
    if Refused.OTHER in kinds:
        remedy = "correct what it names; another zone would say the same"
    elif Refused.QUOTA in kinds:
        remedy = "ask for more quota on the page IAM & Admin, Quotas, then run `pulumi up` again"
    else:
        remedy = (
            "add zones of the region that have it, write spot or standard instead, or run `pulumi up`"
            " later: machines that were made stay, and only this one is tried again"
        )
    return refused(_place(wanted), "gcp.no-zone", f"no zone made it ({reasons})", remedy)


def _bring_up(
    wanted: GcpMachineInputs,
    found: Instance,
    compute: GoogleCompute,
    clock: Clock,
    reporter: Reporter,
) -> None:
    if found.status == "STOPPING":
        found = _wait(wanted, found.zone, compute, clock, reporter, (*STOPPED, RUNNING))
    if found.status not in STOPPED:
        return
    try:
        compute.start(wanted.project, found.zone, found.name, wanted.create_timeout_seconds)
    except ZoneRefusal as error:
        raise refused(
            _place(wanted),
            "gcp.not-starting",
            f"it is stopped in {found.zone}, where its disk is, and does not start: {error.message}",
            "run `pulumi up` again later, or let it be made anew in another zone with"
            " `pulumi up --target-replace` and its URN, which loses its disk",
        ) from error


def _wait_running(
    wanted: GcpMachineInputs, zone: str, compute: GoogleCompute, clock: Clock, reporter: Reporter
) -> Instance:
    live = _wait(wanted, zone, compute, clock, reporter, (RUNNING, *STOPPED))
    if live.status != RUNNING:
        raise refused(
            _place(wanted),
            "gcp.taken-back",
            f"it was made in {live.zone} and is {live.status} again: a spot machine was taken back",
            "run `pulumi up` again, or write provisioning: standard",
        )
    return live


def _wait(
    wanted: GcpMachineInputs,
    zone: str,
    compute: GoogleCompute,
    clock: Clock,
    reporter: Reporter,
    ends: tuple[str, ...],
) -> Instance:
    # One machine in one zone: asking all zones is dear, and a hundred machines may wait side by side.
    seen: list[Instance] = []

    def look() -> Sequence[Finding]:
        live = compute.get(wanted.project, zone, wanted.name)
        if live is not None and live.status in ends:
            seen.append(live)
            return ()
        status = "is gone" if live is None else f"is {live.status}"
        return (Finding("gcp.not-running", f"it {status}", level=Level.REPAIR),)

    found = poll(
        look,
        target=_place(wanted),
        timeout_seconds=wanted.create_timeout_seconds,
        poll_seconds=POLL_SECONDS,
        clock=clock,
        reporter=reporter,
    )
    if found:
        raise refused(
            _place(wanted),
            "gcp.not-running",
            f"{found[0].problem} after {wanted.create_timeout_seconds} s",
            "see what `gcloud compute operations list` says of it, then run `pulumi up` again",
        )
    return seen[0]


def _settle(wanted: GcpMachineInputs, live: Instance, compute: GoogleCompute) -> Instance:
    """Bring what can change in place to what is wanted."""
    before = live
    kept = {key: value for key, value in live.labels.items() if key.startswith("goog-")}
    labels = {**kept, **wanted.all_labels}
    if dict(live.labels) != labels:
        compute.set_labels(wanted.project, live, labels)
    if sorted(live.tags) != sorted(wanted.tags):
        compute.set_tags(wanted.project, live, wanted.tags)
    if live.deletion_protection is not wanted.deletion_protection:
        compute.set_deletion_protection(wanted.project, live, wanted.deletion_protection)
    return compute.get(wanted.project, live.zone, live.name) or before


def _place(wanted: GcpMachineInputs) -> str:
    return f"machine {wanted.name} in project {wanted.project}"


ALL_GPUS = "GPUS_ALL_REGIONS"
SPOT_PREFIX = "PREEMPTIBLE_"
CPU_QUOTAS = {"n2": "N2_CPUS", "a2": "A2_CPUS"}
"""Series that do not count towards CPUS. A3 has no quota of processors."""


class GcpQuotaInputs(Strict):
    """The machines of a cluster and what each of them counts for."""

    project: str
    region: str
    owner: str
    machines: Annotated[dict[str, dict[str, float]], Field(min_length=1)]
    """By name on Google Cloud: amounts by metric."""
    google: GoogleAccess = GoogleAccess()

    @property
    def natural_id(self) -> str:
        """One for each stack and region."""
        return f"{self.project}/{self.region}/{self.owner}/quota"


def needs(
    machine: str,
    *,
    product: str | None,
    gpus: int,
    provisioning: Provisioning,
    disk_gib: int,
    public_address: bool,
) -> dict[str, float]:
    """What one machine of a type counts for.

    Raises:
        KeyError: nobody has read about the machine type.
    """
    size = machine_type(machine)
    if size is None:
        raise KeyError(machine)
    spot = SPOT_PREFIX if provisioning is Provisioning.SPOT else ""
    amounts: dict[str, float] = {"SSD_TOTAL_GB": disk_gib}
    series = machine.partition("-")[0]
    if series != "a3" and not spot:
        amounts[CPU_QUOTAS.get(series, "CPUS")] = size.vcpus
    if gpus:
        row = attachable(product) if product else None
        metric = row[1].quota if row else size.built_in.quota if size.built_in else None
        if metric:
            amounts[f"{spot}{metric}"] = gpus
        amounts[ALL_GPUS] = gpus
    if public_address:
        amounts["IN_USE_ADDRESSES"] = 1
    return amounts


def require(
    wanted: GcpQuotaInputs, existing: Collection[str], quotas: Mapping[str, Quota]
) -> dict[str, float]:
    """What the machines that are missing count for together.

    Raises:
        Refused: the project may not have that much; names every metric that is short.
    """
    total: dict[str, float] = {}
    missing = [name for name in wanted.machines if name not in existing]
    for name in missing:
        for metric, amount in wanted.machines[name].items():
            total[metric] = total.get(metric, 0) + amount
    short = [
        f"{metric} needs {amount:g} more and {quota.free:g} of {quota.limit:g} are free"
        for metric, amount in sorted(total.items())
        if (quota := quotas.get(metric)) is not None and quota.free < amount
    ]
    if short:
        raise refused(
            f"project {wanted.project}, region {wanted.region}",
            "gcp.quota",
            f"the quota does not suffice for {len(missing)} machines: {'; '.join(short)}",
            "ask for more on the page IAM & Admin, Quotas; nothing was made",
        )
    return total
