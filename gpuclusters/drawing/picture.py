"""What a picture of a cluster shows, whoever knows it: configuration, a plan, or what is live."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuclusters.review import fleet


@dataclass(frozen=True, slots=True)
class Partition:
    """GPUs of a board that one VM gets together."""

    label: str
    """`partition 5`, or empty where the GPUs are in none."""
    modules: tuple[int, ...]


def loose(modules: Iterable[int]) -> tuple[Partition, ...]:
    """GPUs that are in no partition, if there are any."""
    found = tuple(modules)
    return (Partition("", found),) if found else ()


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
        return sum(len(partition.modules) for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who shares the cluster, and how many GPUs it may hold."""

    name: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Picture:
    type: str
    machines: tuple[Machine, ...]
    name: str = ""
    tenants: tuple[Tenant, ...] = ()
    control_plane: str = ""
    programs: tuple[str, ...] = ()
    says: str = ""
    """Where the picture comes from: `from configuration`, `live`."""

    @property
    def gpus(self) -> int:
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


_SWITCHED = ("hgx-", "dgx-")
_LARGEST_BOARD = 16


def drawn(cluster: fleet.Cluster, says: str) -> Picture:
    return Picture(
        name=cluster.name,
        type=cluster.type,
        machines=tuple(_machine(m, cluster) for _, m in sorted(cluster.machines.items())),
        tenants=tuple(Tenant(n, gpus) for n, gpus in sorted(cluster.tenants.items())),
        control_plane=_control_plane(cluster),
        says=says,
    )


def _control_plane(cluster: fleet.Cluster) -> str:
    if not any(machine.role for machine in cluster.machines.values()):
        return ""
    return "Usernetes" if cluster.type == "usernetes" else "RKE2"


def _machine(machine: fleet.Machine, cluster: fleet.Cluster) -> Machine:
    cut = sorted((machine.partitions or {}).items(), key=lambda p: (p[1], p[0]))
    parts = tuple(Partition(f"partition {n}", modules) for n, modules in cut if modules)
    taken = {module for part in parts for module in part.modules}
    parts += loose(sorted({*range(1, min(machine.gpus, _LARGEST_BOARD) + 1)} - taken))
    by_lease = cluster.type == "caas" and machine.gpus > 0 and machine.partitions is None
    return Machine(
        name=machine.name,
        kind=machine.kind,
        partitions=parts,
        role="control plane" if machine.role in ("server", "control-plane") else "",
        note="partitions by lease" if by_lease else "",
        switched=machine.kind.startswith(_SWITCHED) or cluster.type == "caas",
    )
