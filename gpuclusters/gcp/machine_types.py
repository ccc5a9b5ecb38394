"""Machine types of Google Compute Engine, the GPUs they have or can be given, and where (a dated table)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial

from gpuclusters.compat.dated_table import Row, Table

MIB_PER_GIB = 1024

_CUSTOM = re.compile(r"(?:n1-)?custom-([0-9]{1,3})-([0-9]{1,7})")


class Provisioning(StrEnum):
    """How a machine is paid for, and whether Google may take it back."""

    STANDARD = "standard"
    SPOT = "spot"


class Series(Row):
    """Predefined machine types that differ in size alone."""

    vcpus: tuple[int, ...]
    memory: float
    """GiB per vCPU."""


class Custom(Row):
    """What a custom N1 machine type may be."""

    least_memory: float
    """GiB per vCPU."""
    most_memory: float
    """GiB per vCPU."""
    step_mib: int
    most_vcpus: int


class Attachable(Row):
    """A GPU that is added to an N1 machine."""

    product: str
    quota: str
    counts: Mapping[int, tuple[int, int]]
    """By number of GPUs: the most vCPUs and the most GiB of the machine."""
    zones: tuple[str, ...]


class BuiltIn(Row):
    """Machine types that come with their GPUs."""

    product: str
    accelerator: str
    quota: str
    provisioning: tuple[Provisioning, ...] = tuple(Provisioning)
    elsewhere: tuple[str, ...] = ()
    """Other ways in which Google sells it, which this program does not ask for."""
    types: Mapping[str, tuple[int, int, int]]
    """By name: GPUs, vCPUs, GiB."""
    zones: tuple[str, ...]


class Machines(Table):
    series: Mapping[str, Series]
    custom: Custom
    attachable: Mapping[str, Attachable]
    built_in: Mapping[str, BuiltIn]


@dataclass(frozen=True, slots=True)
class MachineType:
    vcpus: int
    memory_gib: float
    takes_gpus: bool = False
    built_in: BuiltIn | None = None
    gpus: int = 0


table = cache(partial(Machines.packaged, "gcp_machines"))


def machine_type(name: str) -> MachineType | None:
    """What a machine type is; None if nobody has read about it."""
    for family in table().built_in.values():
        if name in family.types:
            gpus, vcpus, memory = family.types[name]
            return MachineType(vcpus, memory, built_in=family, gpus=gpus)
    if found := _CUSTOM.fullmatch(name):
        return _custom(int(found[1]), int(found[2]))
    series, _, vcpus_text = name.rpartition("-")
    row = table().series.get(series)
    if row is None or not vcpus_text.isascii() or vcpus_text not in map(str, row.vcpus):
        return None
    vcpus = int(vcpus_text)
    return MachineType(vcpus, vcpus * row.memory, takes_gpus=series.startswith("n1-"))


def _custom(vcpus: int, memory_mib: int) -> MachineType | None:
    rule = table().custom
    memory = memory_mib / MIB_PER_GIB
    fits = (
        (vcpus == 1 or vcpus % 2 == 0)
        and 0 < vcpus <= rule.most_vcpus
        and memory_mib % rule.step_mib == 0
        and vcpus * rule.least_memory <= memory <= vcpus * rule.most_memory
    )
    return MachineType(vcpus, memory, takes_gpus=True) if fits else None


def type_names() -> tuple[str, ...]:
    """All predefined machine types, for suggestions."""
    given = [f"{name}-{n}" for name, series in table().series.items() for n in series.vcpus]
    return (*given, *(name for family in table().built_in.values() for name in family.types))


def products() -> tuple[str, ...]:
    """The GPUs that Google has in a machine we know, as the table of GPU products names them."""
    added = (row.product for row in table().attachable.values())
    return tuple(dict.fromkeys((*added, *(row.product for row in table().built_in.values()))))


def attachable(product: str) -> tuple[str, Attachable] | None:
    """Accelerator type and row of a GPU that is added to an N1 machine; None for others."""
    rows = table().attachable.items()
    return next((found for found in rows if found[1].product == product), None)


def region(zone: str) -> str:
    return zone.rpartition("-")[0]
