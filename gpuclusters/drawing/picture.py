"""What a picture of a cluster shows, whoever knows it: configuration, a plan, or what is live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Partition:
    """GPUs of a board that one VM gets together."""

    label: str
    """`partition 5`, or empty where the GPUs are in none."""
    modules: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine with what is on its board."""

    name: str
    kind: str = ""
    partitions: tuple[Partition, ...] = ()
    role: str = ""
    """What it is for beside GPUs: `control plane`."""
    note: str = ""
    """What an operator should see: out of service, partitions by lease."""
    holders: Mapping[int, str] = field(default_factory=dict)
    switched: bool = False
    """Whether NVSwitches connect the GPUs, behind a service VM."""

    @property
    def gpus(self) -> int:
        """How many GPUs it has."""
        return sum(len(partition.modules) for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who shares the cluster, and how many GPUs it may hold."""

    name: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Picture:
    """One cluster."""

    name: str
    type: str
    machines: tuple[Machine, ...]
    tenants: tuple[Tenant, ...] = ()
    control_plane: str = ""
    programs: tuple[str, ...] = ()
    says: str = ""
    """Where the picture comes from: `from configuration`, `live`."""

    @property
    def gpus(self) -> int:
        """GPUs of all machines."""
        return sum(machine.gpus for machine in self.machines)


MOST_DRAWN_ALONE = 24


@dataclass(frozen=True, slots=True)
class Card:
    """A machine, and how many more are like it."""

    machine: Machine
    names: tuple[str, ...]


def cards(machines: Sequence[Machine]) -> list[Card]:
    """What is drawn: every machine, or where there are many, one of each kind with the names of all."""
    if len(machines) <= MOST_DRAWN_ALONE:
        return [Card(machine, (machine.name,)) for machine in machines]
    alike: dict[str, list[Machine]] = {}
    for machine in machines:
        alike.setdefault(repr(replace(machine, name="")), []).append(machine)
    return [Card(same[0], tuple(machine.name for machine in same)) for same in alike.values()]
