"""Tenancies that the API made: they go with what allowed them, and are no drift meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from gpuclusters.core.finding import Refused
from gpuclusters.core.ports import ClusterObjects, ObjectKind
from gpuclusters.lease.model import GPU_LEASE
from gpuclusters.tenancy.cluster import remove_on_demand


def tenancy(name: str, label: str | None = "true") -> dict[str, Any]:
    labels = {} if label is None else {"gpu-clusters.dev/on-demand": label}
    since = "2026-11-27T12:00:00Z"
    return {"metadata": {"name": name, "uid": name, "labels": labels, "creationTimestamp": since}}


@dataclass
class Objects:
    leases: Sequence[dict[str, Any]] = ()
    deleted: list[str] = field(default_factory=list)
    target: str = "cluster"

    def list(self, kind: ObjectKind, _namespace: str = "") -> Sequence[dict[str, Any]]:
        names = ("initech", "hooli", "promoted")
        made = [*map(tenancy, names), tenancy("acme", None), tenancy("other", "false")]
        return self.leases if kind == GPU_LEASE else made

    def delete(self, _kind: ObjectKind, name: str, _namespace: str = "") -> None:
        self.deleted.append(name)


def removed(cluster: Objects) -> list[str]:
    remove_on_demand(["acme", "promoted"], cast(ClusterObjects, cluster))
    return sorted(cluster.deleted)


def test_those_that_were_made_on_demand_go_and_declared_ones_stay() -> None:
    assert removed(Objects()) == ["hooli", "initech"]


def test_none_goes_while_one_of_them_holds_gpus() -> None:
    held = {
        "metadata": {"name": "g1"},
        "status": {"phase": "Leased", "holder": {"tenant": "hooli"}},
    }
    cluster = Objects(leases=[held])
    with pytest.raises(Refused, match=r"tenant hooli.*holds GPUs: lease g1"):
        removed(cluster)
    assert cluster.deleted == []
