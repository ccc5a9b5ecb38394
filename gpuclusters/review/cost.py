"""What hardware costs, before and after; what the price table does not have is unknown, never zero."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Annotated, Any

from pydantic import Field, ValidationError

from gpuclusters.compat import dated_table
from gpuclusters.compat.dated_table import Row
from gpuclusters.core.model import merged
from gpuclusters.review.fleet import (
    INSTANCE,
    NODE_POOL,
    RENTED,
    fleet,
    host_of,
    machine_type_of,
    nodes_of,
)
from gpuclusters.review.plan import Plan, Resource
from gpuclusters.review.text import SECRET, UNKNOWN

Rate = Annotated[float, Field(ge=0, le=10_000_000, allow_inf_nan=False)]

# What one vCPU and GiB count of Google's N1 machine types is: the part before the number says the memory.
_N1_GIB_PER_VCPU = {"n1-standard": 3.75, "n1-highmem": 6.5, "n1-highcpu": 0.9}


class MachineRate(Row):
    """A machine family whose price is by core and memory."""

    vcpu_hour: Rate
    gib_hour: Rate


class Region(Row):
    """Prices of one region of Google Cloud."""

    n1: MachineRate | None = None
    gpus: Mapping[str, Rate] = Field(default_factory=dict)
    """Per GPU and hour."""
    disks: Mapping[str, Rate] = Field(default_factory=dict)
    """Per GiB and month."""
    machines: Mapping[str, Rate] = Field(default_factory=dict)
    """Whole machine types per hour, with the GPUs that belong to them."""


class GoogleCloud(Row):
    """Prices of Google Cloud."""

    gke_cluster: Rate | None = None
    """What Google asks per hour for the control plane of a managed cluster."""
    regions: Mapping[str, Region] = Field(default_factory=dict)


class OwnMachine(Row):
    """A machine that was bought: what it costs is spread over the time that it is used."""

    purchase: Rate
    """What one cost, with network and spare parts."""
    years: Annotated[float, Field(gt=0, le=30)]
    """Until it is written off."""
    power_kw: Rate = 0.0
    """Drawn under load, with cooling."""
    kwh: Rate = 0.0
    """Price of a kilowatt-hour."""
    monthly: Rate = 0.0
    """Housing, network and people, per machine and month."""

    def per_hour(self, hours_per_month: float) -> float:
        """Cost of one hour, used or idle."""
        write_off = self.purchase / (self.years * 12 * hours_per_month)
        return write_off + self.power_kw * self.kwh + self.monthly / hours_per_month


class PriceTable(Row):
    """All prices, of one day and in one currency."""

    as_of: date
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    hours_per_month: Annotated[float, Field(gt=0, le=744)] = 730
    google_cloud: GoogleCloud = Field(default_factory=GoogleCloud)
    own_machines: Mapping[str, OwnMachine] = Field(default_factory=dict)

    def own(self, *names: str) -> float | None:
        """Cost per hour of an own machine, under the first of these names that the table has."""
        for name in names:
            if name in self.own_machines:
                return self.own_machines[name].per_hour(self.hours_per_month)
        return None

    def machine(self, region: str, machine_type: str) -> float | None:
        """Cost per hour of a machine type of Google Cloud, without GPUs that are added to it."""
        known = self._region(region)
        if machine_type in known.machines:
            return known.machines[machine_type]
        family, _, count = machine_type.rpartition("-")
        if known.n1 is None or family not in _N1_GIB_PER_VCPU or not count.isdecimal():
            return None
        cores = int(count)
        return cores * (known.n1.vcpu_hour + _N1_GIB_PER_VCPU[family] * known.n1.gib_hour)

    def gpu(self, region: str, kind: str) -> float | None:
        """Cost per hour of one GPU that is added to a machine of Google Cloud."""
        return self._region(region).gpus.get(kind)

    def disk(self, region: str, kind: str) -> float | None:
        """Cost per hour of one GiB of disk of Google Cloud."""
        rate = self._region(region).disks.get(kind)
        return None if rate is None else rate / self.hours_per_month

    def _region(self, name: str) -> Region:
        return self.google_cloud.regions.get(name) or Region()


class PriceError(Exception):
    """A price table that cannot be used. The message has all faults."""

    error_id = "review.price-table"


@cache
def _shipped() -> Mapping[str, Any]:
    return dated_table.bare(dated_table.written("prices"))


def price_table(
    own: object = None, name: str = "the price table (prices of the budget)"
) -> PriceTable:
    """The table; of `own`, another of this name in the same form, only what differs is needed."""
    if own is None:
        return PriceTable.model_validate(_shipped())
    if not isinstance(own, Mapping):
        raise PriceError(f"{name} is not an object; docs/review.md shows one")
    if own and "as-of" not in own:
        raise PriceError(f"{name} has no as-of: the day on which its prices were right")
    try:
        return PriceTable.model_validate(merged(_shipped(), own))
    except ValidationError as error:
        faults = "\n".join(
            f"  {'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()
        )
        raise PriceError(f"{name} has faults:\n{faults}") from error


_DISK = "gcp:compute/disk:Disk"
_ADDRESSES = ("gcp:compute/address:Address", "gcp:compute/globalAddress:GlobalAddress")
_MANAGED = "gcp:container/cluster:Cluster"
_DEFAULT_DISK = "pd-standard"
_SPOT = "spot prices change and are not in the price table"


@dataclass(frozen=True, slots=True)
class Item:
    """Something that costs money while it is there."""

    what: str
    per_hour: float | None
    """None where the table does not tell."""
    why: str = ""
    key: str = ""
    """What it is the same by on the other side; by default what it is called."""


@dataclass(frozen=True, slots=True)
class Side:
    items: tuple[Item, ...]
    table: PriceTable

    @property
    def known(self) -> float:
        """Cost per hour of what is known."""
        return sum(item.per_hour for item in self.items if item.per_hour is not None)

    @property
    def known_per_month(self) -> float:
        return self.known * self.table.hours_per_month

    @property
    def unknown(self) -> tuple[Item, ...]:
        return tuple(item for item in self.items if item.per_hour is None)


@dataclass(frozen=True, slots=True)
class Cost:
    """Before and after, at the prices of one table."""

    before: Side
    after: Side
    table: PriceTable

    @property
    def more_per_hour(self) -> float:
        """How much more the known part costs afterwards."""
        return self.after.known - self.before.known

    @property
    def new_unknown(self) -> tuple[Item, ...]:
        """What comes and has no price in the table."""
        return _beyond(self.after, self.before)

    @property
    def gone_unknown(self) -> tuple[Item, ...]:
        """What goes and has no price in the table."""
        return _beyond(self.before, self.after)

    def rows(self) -> Iterator[tuple[str, str, str, str]]:
        """Per hour and per month: before, after, and the difference where it is known."""
        month = self.table.hours_per_month
        for what, factor, digits in (("per hour", 1.0, 2), ("per month", month, 0)):
            cells = [_money(side, factor, digits) for side in (self.before, self.after)]
            change = self.more_per_hour * factor
            told = f"{change:+,.{digits}f}" if abs(change) >= 0.005 else ""
            if self.new_unknown or self.gone_unknown:
                told = "unknown"
            yield what, cells[0], cells[1], told


def _beyond(side: Side, other: Side) -> tuple[Item, ...]:
    known = {item.key or item.what for item in other.unknown}
    return tuple(item for item in side.unknown if (item.key or item.what) not in known)


def _money(side: Side, factor: float, digits: int) -> str:
    if not side.items:
        return "0"
    known, unknown = f"{side.known * factor:,.{digits}f}", len(side.unknown)
    some = f"{known} + unknown ({unknown:,} of {len(side.items):,})" if unknown else known
    return "unknown" if unknown == len(side.items) else some


def cost(plan: Plan, table: PriceTable) -> Cost:
    """What both sides of a plan cost."""
    before, after = (Side(tuple(_items(plan, table, after=side)), table) for side in (False, True))
    return Cost(before, after, table)


def _items(plan: Plan, table: PriceTable, *, after: bool) -> Iterator[Item]:
    resources = list(plan.after() if after else plan.before())
    rented = {host_of(plan, r) for r in resources if r.type in (INSTANCE, RENTED)}
    rented |= {name for r in resources if r.type == NODE_POOL for name in nodes_of(r)}
    for resource in resources:
        if resource.type == INSTANCE:
            yield from _instance(resource, table)
        elif resource.type == RENTED:
            yield from _rented(resource, table)
        elif resource.type == NODE_POOL:
            yield from _nodes(resource, table)
        elif resource.type == _MANAGED:
            fee = table.google_cloud.gke_cluster
            why = "" if fee is not None else "the price table has no gke-cluster"
            yield Item(f"control plane of {resource.name}", fee, why)
        elif resource.type == _DISK:
            yield _disk(resource.name, resource.inputs, _region(resource), table)
        elif resource.type in _ADDRESSES:
            yield Item(f"address {resource.name}", None, "addresses are not in the price table")
    for cluster in fleet(plan, after=after).values():
        for machine in sorted(cluster.machines.values(), key=lambda m: m.name):
            if machine.name in rented:
                continue
            per_hour = table.own(machine.name, machine.kind)
            what = f"machine {machine.name}" + (f" ({machine.kind})" if machine.kind else "")
            why = "own-machines of the price table has no entry for it" if per_hour is None else ""
            yield Item(what, per_hour, why, machine.name)


def _instance(resource: Resource, table: PriceTable) -> Iterator[Item]:
    kind = resource.text("machineType") or "?"
    why = _SPOT if resource.is_spot else ""
    cards = resource.at("guestAccelerators") or []
    disk = resource.at("bootDisk", "initializeParams")
    return _machine(resource, _region(resource), kind, why, cards, disk, table)


def _rented(resource: Resource, table: PriceTable) -> Iterator[Item]:
    """A machine that looks for a zone: the one that it is in, else the first that it may be in."""
    zones = resource.at("zones")
    zone = resource.outputs.get("zone")
    if not isinstance(zone, str) or zone in ("", UNKNOWN):
        zone = zones[0] if isinstance(zones, list) and zones else "?"
    region, kind = str(zone).rsplit("-", 1)[0], resource.text("machine_type") or "?"
    standard = resource.text("provisioning") in (None, "standard")
    why = "" if standard else "only standard machines are in the price table"
    disk = resource.at("disk")
    if isinstance(disk, Mapping):
        disk = {"size": disk.get("size_gib"), "type": disk.get("type", "pd-balanced")}
    return _machine(resource, region, kind, why, [resource.at("accelerator")], disk, table)


def _nodes(pool: Resource, table: PriceTable) -> Iterator[Item]:
    """The nodes that a pool begins with; what an autoscaler adds is not counted."""
    region = _region_of(pool.text("location") or "?")
    why = _SPOT if pool.at("nodeConfig", "spot") else ""
    cards = pool.at("nodeConfig", "guestAccelerators") or []
    disk = {"size": pool.at("nodeConfig", "diskSizeGb"), "type": pool.at("nodeConfig", "diskType")}
    for _ in nodes_of(pool):
        yield from _machine(pool, region, machine_type_of(pool), why, cards, disk, table)


def _machine(
    resource: Resource,
    region: str,
    kind: str,
    unpriced: str,
    cards: Sequence[Any],
    disk: Any,
    table: PriceTable,
) -> Iterator[Item]:
    """A rented machine with its cards and its boot disk; `unpriced` is why the table cannot tell."""
    label = f"{resource.text('name') or resource.name} ({kind})"
    per_hour = None if unpriced else table.machine(region, kind)
    yield Item(f"machine {label}", per_hour, unpriced or _missing(per_hour, kind, region))
    if not unpriced:
        yield from (_card(label, c, region, table) for c in cards if isinstance(c, Mapping))
    if isinstance(disk, Mapping):
        yield _disk(f"boot disk of {resource.name}", disk, region, table)


def _card(label: str, card: Mapping[str, object], region: str, table: PriceTable) -> Item:
    kind = str(card.get("type") or "?").rsplit("/", 1)[-1]
    count = card.get("count")
    each = table.gpu(region, kind)
    if not isinstance(count, int | float) or each is None:
        return Item(f"GPUs of {label}", None, _missing(None, kind, region))
    return Item(f"{int(count)} × {kind} of {label}", each * count)


def _disk(name: str, disk: Mapping[str, object], region: str, table: PriceTable) -> Item:
    kind = str(disk.get("type") or _DEFAULT_DISK).rsplit("/", 1)[-1]
    size = disk.get("size")
    each = table.disk(region, kind)
    if not isinstance(size, int | float) or isinstance(size, bool):
        return Item(f"disk {name}", None, "its size is not stated")
    if each is None:
        return Item(f"disk {name}", None, _missing(None, kind, region))
    return Item(f"disk {name} ({int(size)} GiB {kind})", each * size)


def _region(resource: Resource) -> str:
    zone = resource.text("zone") or resource.text("region") or ""
    if zone in ("", UNKNOWN, SECRET):
        return "?"
    return _region_of(zone.rsplit("/", 1)[-1])


def _region_of(place: str) -> str:
    """Of a zone, or of what is a region already."""
    return place.rsplit("-", 1)[0] if place.count("-") == 2 else place


def _missing(found: float | None, kind: str, region: str) -> str:
    return "" if found is not None else f"the price table has no {kind} in {region}"
