"""Pictures of the clusters that a plan declares."""

from __future__ import annotations

from gpuclusters.drawing import picture
from gpuclusters.drawing.picture import Partition, Picture
from gpuclusters.review.fleet import Cluster, Machine

_SWITCHED = ("hgx-", "dgx-")
_LARGEST_BOARD = 16


def drawn(cluster: Cluster, says: str) -> Picture:
    """The picture of one cluster."""
    return Picture(
        name=cluster.name,
        type=cluster.type,
        machines=tuple(_machine(m, cluster) for _, m in sorted(cluster.machines.items())),
        tenants=tuple(picture.Tenant(n, gpus) for n, gpus in sorted(cluster.tenants.items())),
        control_plane=_control_plane(cluster),
        says=says,
    )


def _control_plane(cluster: Cluster) -> str:
    if not any(machine.role for machine in cluster.machines.values()):
        return ""
    return "Usernetes" if cluster.type == "usernetes" else "RKE2"


def _machine(machine: Machine, cluster: Cluster) -> picture.Machine:
    loose = tuple(range(1, min(machine.gpus, _LARGEST_BOARD) + 1))
    if machine.partitions:
        parts = tuple(
            Partition(f"partition {number}", modules)
            for number, modules in sorted(machine.partitions.items(), key=lambda p: (p[1], p[0]))
            if modules
        )
        rest = tuple(m for m in loose if not any(m in part.modules for part in parts))
        parts += (Partition("", rest),) if rest else ()
    else:
        parts = (Partition("", loose),) if loose else ()
    by_lease = cluster.type == "caas" and machine.gpus > 0 and machine.partitions is None
    return picture.Machine(
        name=machine.name,
        kind=machine.kind,
        partitions=parts,
        role="control plane" if machine.role in ("server", "control-plane") else "",
        note="partitions by lease" if by_lease else "",
        switched=machine.kind.startswith(_SWITCHED) or cluster.type == "caas",
    )
