"""What the resources of a `usernetes` cluster tell: hosts with rootless Docker, and the nodes in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpuclusters.drift.engine import Seen
from gpuclusters.drift.finding import Finding
from gpuclusters.drift.sentences import rules_of, told

_NODE: Final = rules_of(
    (r"the rootless Docker of \S+ does not answer", "rootless-docker-down"),
    (r"the node container is (?!made)", "node-container-down"),
    (r"the node container has other GPUs|GPU|CDI|NVIDIA", "node-container-gpus-changed"),
    (r"the node is not Ready", "node-not-ready"),
    (r"the node is closed for", "node-cordoned"),
    (r"the cluster does not know the node", "node-missing"),
    (r"(?P<what>\S+) of the overlay differs", "node-container-changed"),
    (r"", "node-container-changed"),
)


def node(seen: Seen, *, up: bool | None) -> Iterator[Finding]:
    """UsernetesNode: the container that is a node, and its place in the cluster."""
    name = str(seen.old.at("node_name"))
    if seen.new is None:
        yield Finding(
            "usernetes-missing", seen.host, f"Node {name}", "a node", "no node", up=up, urn=seen.urn
        )
        return
    yield from told(seen, _NODE, up=up, fallback=f"Node {name}")
