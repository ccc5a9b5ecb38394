"""Which clusters, machines, GPUs, partitions and tenants a plan declares, before and after."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gpuclusters.fabric.table import TABLES, Baseboard, LayoutError, plan_layout, table_for
from gpuclusters.review.plan import KEPT as KEPT
from gpuclusters.review.plan import OURS, Plan, Resource, is_component
from gpuclusters.review.text import plural

INSTANCE = "gcp:compute/instance:Instance"
RENTED = f"{KEPT}GcpMachine"
"""A machine of Google Cloud that finds its zone by itself."""
NODE_POOL = "gcp:container/nodePool:NodePool"
"""Nodes of a managed cluster, whose names are Google's."""
_SHARED = "shared"
_NAMING = {
    f"{KEPT}TenancyPolicy": "caas",
    f"{KEPT}FleetPreflight": "caas",
    f"{KEPT}Rke2Node": "rke2",
    f"{KEPT}GpuReadiness": "rke2",
    f"{KEPT}MigLayout": "rke2",
    f"{KEPT}UsernetesNode": "usernetes",
}
"""Which resources state the name of their cluster, and of what type it is."""
_MACHINE_COMPONENTS = {"GpuHost", "HostPreparation", "GpuMachine"}
_GOOGLE = "gcp"
"""Of the components that hold a cluster's machines on Google Cloud."""


@dataclass(slots=True)
class Machine:
    """A machine with GPUs, or one that a cluster needs without."""

    name: str
    gpus: int = 0
    kind: str = ""
    """Its baseboard or machine type; empty where the plan does not tell."""
    partitions: dict[int, tuple[int, ...]] | None = None
    """GPU modules by number of the active partition; None where leases alone decide."""
    role: str = ""
    """`server` or `agent` of RKE2, `control-plane` or `worker` of Usernetes; empty where that is not told."""


@dataclass(slots=True)
class Cluster:
    """One cluster as one side of the plan declares it."""

    type: str
    name: str
    machines: dict[str, Machine] = field(default_factory=dict)
    tenants: dict[str, int] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        """GPUs of all its machines."""
        return sum(machine.gpus for machine in self.machines.values())

    @property
    def is_by_lease(self) -> bool:
        """Whether leases alone cut its boards."""
        boards = self.machines.values()
        uncut = all(machine.partitions is None for machine in boards)
        return self.type == "caas" and uncut and any(machine.gpus for machine in boards)

    def machine(self, name: str) -> Machine:
        """The machine of that name, known from now on."""
        return self.machines.setdefault(name, Machine(name))

    @property
    def partitions(self) -> Mapping[int, int]:
        """Number of active partitions by size."""
        boards = (machine.partitions or {} for machine in self.machines.values())
        return Counter(len(modules) for board in boards for modules in board.values())


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Capacity:
    cluster: str
    type: str
    rows: tuple[Row, ...]
    existed: bool
    stays: bool
    note: str = ""

    @property
    def changes(self) -> bool:
        """Whether anything counted changes."""
        return any(row.before != row.after for row in self.rows)

    def row(self, what: str) -> Row | None:
        return next((row for row in self.rows if row.what == what), None)


@dataclass(frozen=True, slots=True)
class Switch:
    """A stack whose cluster is another type than before: one cluster goes, another comes."""

    gone: tuple[str, ...]
    come: tuple[str, ...]


def capacities(plan: Plan) -> tuple[Capacity, ...]:
    """What every cluster of the plan has before and after."""
    before, after = fleet(plan, after=False), fleet(plan, after=True)
    return tuple(_capacity(before.get(key), after.get(key)) for key in sorted({*before, *after}))


def switch(found: tuple[Capacity, ...]) -> Switch | None:
    """Whether the stack is switched to another cluster type."""
    gone = tuple(f"{c.type} {c.cluster}" for c in found if c.existed and not c.stays)
    come = tuple(f"{c.type} {c.cluster}" for c in found if c.stays and not c.existed)
    types = {c.type for c in found if c.stays}
    other = {c.type for c in found if c.existed} != types
    return Switch(gone, come) if gone and come and other else None


def _capacity(before: Cluster | None, after: Cluster | None) -> Capacity:
    known = after or before
    if known is None:
        raise ValueError("a cluster that neither was nor will be")
    none = Cluster(known.type, known.name)
    old, new = before or none, after or none
    rows = [
        Row("machines", len(old.machines), len(new.machines)),
        Row("GPUs", old.gpus, new.gpus),
    ]
    for size in sorted({*old.partitions, *new.partitions}, reverse=True):
        counts = old.partitions.get(size, 0), new.partitions.get(size, 0)
        rows.append(Row(f"partitions of {plural(size, 'GPU')}", *counts))
    if old.tenants or new.tenants:
        promised = sum(old.tenants.values()), sum(new.tenants.values())
        rows.append(Row("tenants", len(old.tenants), len(new.tenants)))
        rows.append(Row("GPUs promised to tenants", *promised))
    note = ""
    if new.is_by_lease and not old.is_by_lease:
        note = "From now on leases cut the boards: any partition whose GPUs are free."
    elif old.is_by_lease and after is not None and not new.is_by_lease:
        note = "From now on boards are cut as declared, no longer by leases."
    there = before is not None, after is not None
    return Capacity(known.name, known.type, tuple(rows), *there, note)


@lru_cache(maxsize=16)
def fleet(plan: Plan, *, after: bool) -> Mapping[str, Cluster]:
    """The clusters of one side of a plan, by type and name."""
    found = list(plan.after() if after else plan.before())
    names = _names(found)
    configured = _configured(plan)
    clusters: dict[str, Cluster] = {}
    types = {resource.urn: cluster_type(plan, resource) for resource in found}
    # Machines on Google Cloud are those of the stack's cluster, if it has one.
    owner = min((one for one in types.values() if one and one != _GOOGLE), default=_GOOGLE)
    for resource in found:
        type_ = types[resource.urn]
        if type_ is None or is_component(resource.type):
            continue
        type_ = owner if type_ == _GOOGLE else type_
        name = names.get(type_) or configured.get(type_, {}).get("name") or plan.stack
        cluster = clusters.setdefault(f"{type_} {name}", Cluster(type_, name))
        _take(cluster, plan, resource)
    for cluster in clusters.values():
        _pools(cluster, configured.get(cluster.type, {}))
    return dict(sorted(clusters.items()))


def cluster_type(plan: Plan, resource: Resource) -> str | None:
    """`caas`, `rke2`, `usernetes`, `gke`, `gcp`: of the outermost component around it; None outside."""
    type_ = None
    for parent in (resource, *plan.parents(resource)):
        if is_component(parent.type):
            known = parent.type.split(":")[1]
            type_ = known if known != _SHARED else type_
    if type_ is None and resource.type.startswith((KEPT, INSTANCE)):
        # Some of ours are in no component: what looks at the whole fleet, for example.
        types = plan.cluster_types.get(plan.by_urn[resource.urn].action, frozenset())
        type_ = min(types, default=None)
    return type_


def host_of(plan: Plan, resource: Resource) -> str | None:
    """The machine that a resource is on; None where it is on none."""
    host = resource.text("connection", "host") or resource.text("connection", "address")
    if host is not None:
        return host
    if resource.type in (f"{KEPT}MigLayout", f"{KEPT}NodeMaintenance"):
        return resource.text("node")
    for parent in plan.parents(resource):
        if parent.kind in _MACHINE_COMPONENTS:
            return parent.name
    return resource.text("name") or resource.name if resource.type in (INSTANCE, RENTED) else None


def gpus_of(resource: Resource) -> int:
    """How many GPUs a resource says that its machine has; 0 where it says nothing."""
    if resource.type in (INSTANCE, NODE_POOL):
        inside = ("nodeConfig",) if resource.type == NODE_POOL else ()
        cards = resource.at(*inside, "guestAccelerators")
        return sum(_number(card.get("count")) for card in cards or [] if isinstance(card, Mapping))
    if resource.type == f"{KEPT}CdiSpec":
        return len(_list(resource.at("devices")))
    gpus = resource.at("gpus")
    if isinstance(gpus, Mapping | list):
        return len(gpus)
    return _number(gpus) if resource.type.startswith(KEPT) else 0


def nodes_of(pool: Resource) -> list[str]:
    """A name for each node that a pool begins with."""
    count = _number(pool.at("nodeCount")) or _number(pool.at("initialNodeCount"))
    name = pool.text("name") or pool.name
    return [f"{name}-{number}" for number in range(1, count + 1)]


def machine_type_of(pool: Resource) -> str:
    return pool.text("nodeConfig", "machineType") or "?"


def partitions_of(resource: Resource) -> dict[int, tuple[int, ...]]:
    """The partitions that a `FabricPartitions` keeps active: GPU modules by number."""
    table, active = _table(resource), resource.outputs.get("gpus_by_partition")
    numbers = resource.at("partitions")
    if isinstance(numbers, list):
        return {_number(n): table.get(_number(n), ()) for n in numbers}
    return _stated(active) if isinstance(active, Mapping) and active else _laid_out(resource)


def _stated(table: Mapping[str, Any]) -> dict[int, tuple[int, ...]]:
    return {_number(n): tuple(map(_number, modules)) for n, modules in table.items()}


def _laid_out(resource: Resource) -> dict[int, tuple[int, ...]]:
    """The partitions of a layout that the board has not got yet: as on a board without any."""
    sizes, board = resource.at("layout"), resource.text("baseboard")
    if not isinstance(sizes, list) or board not in set(Baseboard):
        return {}
    own = resource.at("table")
    try:
        table = table_for(Baseboard(board), _table(resource) if isinstance(own, Mapping) else None)
        return {p.id: p.modules for p in plan_layout(table, tuple(map(_number, sizes)))}
    except LayoutError:
        return {}


def _table(resource: Resource) -> Mapping[int, tuple[int, ...]]:
    own = resource.at("table")
    if isinstance(own, Mapping):
        return _stated(own)
    board = resource.text("baseboard")
    if board is None or board not in set(Baseboard):
        return {}
    known = TABLES.get(Baseboard(board))
    return {p.id: p.modules for p in known.partitions} if known else {}


def _take(cluster: Cluster, plan: Plan, resource: Resource) -> None:
    if resource.type == f"{KEPT}TenancyPolicy":
        name = resource.text("tenant") or resource.name
        cluster.tenants[name] = _number(resource.at("spec", "gpus"))
        return
    if resource.type == NODE_POOL:
        for name in nodes_of(resource):
            machine = cluster.machine(name)
            machine.gpus, machine.kind = gpus_of(resource), machine_type_of(resource)
        return
    host = host_of(plan, resource)
    if host is None:
        return
    machine = cluster.machine(host)
    machine.gpus = max(machine.gpus, gpus_of(resource))
    if resource.type == f"{KEPT}FabricPartitions":
        machine.partitions = partitions_of(resource)
        machine.kind = resource.text("baseboard") or machine.kind
    elif resource.type in (INSTANCE, RENTED):
        stated = resource.text("machineType") or resource.text("machine_type")
        machine.kind = stated or machine.kind
    elif resource.type in (f"{KEPT}Rke2Node", f"{KEPT}UsernetesNode"):
        machine.role = resource.text("role") or machine.role


def _names(resources: Iterable[Resource]) -> Mapping[str, str]:
    """Cluster names as resources state them, by cluster type."""
    # The first that states one counts.
    stated = ((r.type, r.text("cluster")) for r in reversed(list(resources)))
    return {_NAMING[type_]: name for type_, name in stated if name and type_ in _NAMING}


def _configured(plan: Plan) -> Mapping[str, Mapping[str, Any]]:
    """The sections of the stack's configuration, by cluster type."""
    sections = {}
    for key, text in plan.config.items():
        if key.startswith(OURS) and text.startswith("{"):
            with suppress(ValueError, RecursionError):
                sections[key.removeprefix(OURS)] = json.loads(text)
    return sections


def _pools(cluster: Cluster, section: Mapping[str, Any]) -> None:
    """GPUs that only the configuration tells of: those of an rke2 cluster's pools."""
    for pool in _list(section.get("pools")):
        gpu = pool.get("gpu") if isinstance(pool, Mapping) else None
        if not isinstance(gpu, Mapping):
            continue
        for name in _list(pool.get("nodes")):
            machine = cluster.machines.get(str(name))
            if machine is not None and not machine.gpus:
                machine.gpus = _number(gpu.get("count"))
                machine.kind = machine.kind or str(gpu.get("product") or "")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> int:
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0
