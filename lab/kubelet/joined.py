"""Which nodes machines are, where they join a cluster on their own: as the simulated hosts say."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lab.control_plane import NodeSpec, Taint
from lab.hosts.rke2 import rke2_cluster
from lab.hosts.usernetes import usernetes_cluster


@dataclass(frozen=True, slots=True)
class JoinedNode:
    running: bool
    """Whether what makes it a node runs there, and the kubelet with it."""
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    rootless: bool = False
    """Whether it is inside of a container of its host."""
    told: Mapping[str, Any] = field(default_factory=dict)
    """What the host's own cluster was told about the node since it registered: `taints` of these `keys`,
    `annotations`, `addresses`, `unschedulable`. Empty where the API server of the lab is told by others."""

    def of(self, spec: NodeSpec) -> NodeSpec:
        """The node as it registers: with what its host's configuration says beside the lab's word."""
        return replace(spec, labels={**spec.labels, **self.labels}, taints=self.taints)


def joined_nodes(hosts: Path) -> dict[str, JoinedNode]:
    """The nodes of all clusters of a folder of hosts, by name.

    A node whose host no longer has its cluster's data is none: its server, and what it knew, is gone too.
    """
    return {
        **dict(_rke2(rke2_cluster.Clusters(hosts))),
        **dict(_usernetes(usernetes_cluster.Clusters(hosts))),
    }


def _rke2(clusters: rke2_cluster.Clusters) -> Iterator[tuple[str, JoinedNode]]:
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


def _usernetes(clusters: usernetes_cluster.Clusters) -> Iterator[tuple[str, JoinedNode]]:
    known = clusters.read()
    for cluster in known["clusters"].values():
        for name, body in cluster["nodes"].items():
            host = body["metadata"]["annotations"][usernetes_cluster.HOST]
            belongs = known["nodes"].get(host, {}).get("cluster") == cluster["id"]
            taints = _taints(body["spec"]["taints"])
            # Without network the kubelet of a real node stays NotReady; here it does not come up.
            yield (
                name,
                JoinedNode(
                    belongs and cluster["cni"] and clusters.is_up(host),
                    body["metadata"]["labels"],
                    taints,
                    rootless=True,
                    told=_told(body, taints),
                ),
            )


def _told(body: Mapping[str, Any], taints: Sequence[Taint]) -> Mapping[str, Any]:
    return {
        "keys": [usernetes_cluster.UNINITIALIZED, usernetes_cluster.CONTROL_PLANE],
        "taints": [
            {"key": t.key, "effect": t.effect} | ({"value": t.value} if t.value else {})
            for t in taints
        ],
        "annotations": dict(body["metadata"]["annotations"]),
        "addresses": [a for a in body["status"]["addresses"] if a["type"] == "ExternalIP"],
        "unschedulable": bool(body["spec"].get("unschedulable")),
    }


def _taints(stated: Sequence[Mapping[str, Any]]) -> tuple[Taint, ...]:
    return tuple(Taint(t["key"], t["effect"], t.get("value", "")) for t in stated)
