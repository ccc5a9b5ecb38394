"""What hardware costs per hour, from a dated table. What the table does not have is unknown, never zero."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Rate = Annotated[float, Field(ge=0, le=10_000_000, allow_inf_nan=False)]

# What one vCPU and GiB count of Google's N1 machine types is: the part before the number says the memory.
_N1_GIB_PER_VCPU = {"n1-standard": 3.75, "n1-highmem": 6.5, "n1-highcpu": 0.9}


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=_kebab, populate_by_name=True
    )


class MachineRate(_Model):
    """A machine family whose price is by core and memory."""

    vcpu_hour: Rate
    gib_hour: Rate


class Region(_Model):
    """Prices of one region of Google Cloud."""

    n1: MachineRate | None = None
    gpus: Mapping[str, Rate] = Field(default_factory=dict)
    """Per GPU and hour."""
    disks: Mapping[str, Rate] = Field(default_factory=dict)
    """Per GiB and month."""
    machines: Mapping[str, Rate] = Field(default_factory=dict)
    """Whole machine types per hour, with the GPUs that belong to them."""


class GoogleCloud(_Model):
    """Prices of Google Cloud."""

    regions: Mapping[str, Region] = Field(default_factory=dict)


class OwnMachine(_Model):
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


class PriceTable(_Model):
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
        known = self.google_cloud.regions.get(region)
        if known is None:
            return None
        if machine_type in known.machines:
            return known.machines[machine_type]
        family, _, count = machine_type.rpartition("-")
        if known.n1 is None or family not in _N1_GIB_PER_VCPU or not count.isdecimal():
            return None
        cores = int(count)
        return cores * (known.n1.vcpu_hour + _N1_GIB_PER_VCPU[family] * known.n1.gib_hour)

    def gpu(self, region: str, kind: str) -> float | None:
        """Cost per hour of one GPU that is added to a machine of Google Cloud."""
        known = self.google_cloud.regions.get(region)
        return known.gpus.get(kind) if known else None

    def disk(self, region: str, kind: str) -> float | None:
        """Cost per hour of one GiB of disk of Google Cloud."""
        known = self.google_cloud.regions.get(region)
        rate = known.disks.get(kind) if known else None
        return None if rate is None else rate / self.hours_per_month


def laid_over(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A table with another one's entries in place of its own, key by key."""
    merged = dict(base)
    for key, value in own.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = laid_over(below, value) if both else value  # type: ignore[arg-type]
    return merged
