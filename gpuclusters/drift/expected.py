"""What the configuration expects of the cluster: plain values, the same for every type of cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ExpectedNode:
    """One node."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """Beside those that a resource of the stack sets and tells of."""
    taints: frozenset[str] = frozenset()
    """As `key=value:Effect`."""
    allocatable: Mapping[str, int] = field(default_factory=dict)
    """By resource, what it must offer; of others nothing is said."""
    serves: bool = True
    """False while the configuration takes it out of service: then it is cordoned."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A cluster."""

    nodes: tuple[ExpectedNode, ...] = ()
    others: frozenset[str] = frozenset()
    """Names of nodes that are somebody else's business."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Labels without which a node that is not declared is nobody's business: the cluster is shared. Empty:
    every node of the cluster should be declared."""
    leases: Mapping[str, int] = field(default_factory=dict)
    """By node, how many GPUs have a lease; empty where there are no leases."""
    tenants: frozenset[str] | None = None
    """None where there are no tenancies."""
    firmware: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Accepted versions by prefix of the inventory's item."""
