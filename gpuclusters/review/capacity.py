"""GPUs, machines, partitions and tenants of each cluster: before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuclusters.review.fleet import Cluster, fleet
from gpuclusters.review.plan import Plan


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is counted."""

    what: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """One cluster."""

    cluster: str
    type: str
    rows: tuple[Row, ...]
    existed: bool
    stays: bool
    note: str = ""
    """What the numbers do not tell."""

    @property
    def changes(self) -> bool:
        """Whether anything counted changes."""
        return any(row.before != row.after for row in self.rows)

    def row(self, what: str) -> Row | None:
        """One of the rows."""
        return next((row for row in self.rows if row.what == what), None)


@dataclass(frozen=True, slots=True)
class Switch:
    """A stack whose cluster is another type than before: one cluster goes, another comes."""

    gone: tuple[str, ...]
    """Type and name of what goes."""
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
    if gone and come and {c.type for c in found if c.existed} != types:
        return Switch(gone, come)
    return None


def _capacity(before: Cluster | None, after: Cluster | None) -> Capacity:
    known = after or before
    if known is None:
        raise ValueError("a cluster that neither was nor will be")
    rows = [
        Row("machines", _machines(before), _machines(after)),
        Row("GPUs", before.gpus if before else 0, after.gpus if after else 0),
    ]
    sizes = (before.partitions if before else {}), (after.partitions if after else {})
    for size in sorted({*sizes[0], *sizes[1]}, reverse=True):
        what = f"partitions of {size} GPU" + ("s" if size != 1 else "")
        rows.append(Row(what, sizes[0].get(size, 0), sizes[1].get(size, 0)))
    tenants = (before.tenants if before else {}), (after.tenants if after else {})
    if any(tenants):
        rows.append(Row("tenants", len(tenants[0]), len(tenants[1])))
        rows.append(Row("GPUs promised to tenants", _total(tenants[0]), _total(tenants[1])))
    note = ""
    if _by_lease(after) and not _by_lease(before):
        note = "From now on leases cut the boards: any partition whose GPUs are free."
    elif _by_lease(before) and after is not None and not _by_lease(after):
        note = "From now on boards are cut as declared, no longer by leases."
    return Capacity(
        known.name, known.type, tuple(rows), before is not None, after is not None, note
    )


def _by_lease(cluster: Cluster | None) -> bool:
    return (
        cluster is not None
        and cluster.type == "caas"
        and any(machine.gpus for machine in cluster.machines.values())
        and all(machine.partitions is None for machine in cluster.machines.values())
    )


def _machines(cluster: Cluster | None) -> int:
    return len(cluster.machines) if cluster else 0


def _total(tenants: Mapping[str, int]) -> int:
    return sum(tenants.values())
