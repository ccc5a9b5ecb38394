"""Which nodes machines are, where they join a cluster on their own: as the simulated hosts say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab.control_plane import NodeSpec, Taint
from lab.hosts.rke2_cluster import Clusters


@dataclass(frozen=True, slots=True)
class JoinedNode:
    """A node that a host registered."""

    running: bool
    """Whether RKE2 runs there, and the kubelet with it."""
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]

    def of(self, spec: NodeSpec) -> NodeSpec:
        """The node as it registers: with what its host's configuration says beside the lab's word."""
        return replace(spec, labels={**spec.labels, **self.labels}, taints=self.taints)


def joined_nodes(hosts: Path) -> dict[str, JoinedNode]:
    """The nodes of all clusters of a folder of hosts, by name.

    A node whose host no longer has RKE2's data is none: its server, and what it knew, is gone too.
    """
    return dict(_nodes(Clusters(hosts)))


def _nodes(clusters: Clusters) -> Iterator[tuple[str, JoinedNode]]:
    for cluster in clusters.all().values():
        for name, body in cluster["nodes"].items():
            host = body["metadata"]["annotations"]["gpu-clusters.dev/host"]
            if host in cluster["members"] and clusters.has_data(host):
                yield (
                    name,
                    JoinedNode(
                        clusters.is_up(host),
                        body["metadata"]["labels"],
                        _taints(body["spec"]["taints"]),
                    ),
                )


def _taints(stated: Sequence[Mapping[str, Any]]) -> tuple[Taint, ...]:
    return tuple(Taint(t["key"], t["effect"], t.get("value", "")) for t in stated)
