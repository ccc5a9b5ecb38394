"""What a lab consists of, process by process."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lab import (
    control_plane,
    gpu_operator,
    hosts,
    issuer,
    kata_runtime,
    kubelet,
    memory,
    nodes,
    real_nodes,
    usernetes,
)
from lab.lifecycle import MARK
from lab.nodes.choice import Kind
from lab.spec import known


@dataclass(frozen=True, slots=True)
class Part:
    """One process of a lab, for people. `pid` and `rss_bytes` are 0 when it does not run.

    `stand_in` says what stands for a part of a real cluster there, where a command would not tell otherwise.
    """

    name: str
    running: bool
    where: str
    pid: int = 0
    rss_bytes: int = 0
    log: Path | None = None
    stand_in: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "running": self.running,
            "where": self.where,
            "pid": self.pid,
            "rss-bytes": self.rss_bytes,
            "log": str(self.log) if self.log else None,
            "stand-in": self.stand_in or None,
        }


def status(folder: Path) -> list[Part]:
    """What runs, process by process; empty if there is no lab."""
    if not (folder / MARK).exists():
        return []
    parts = []
    for one in control_plane.status(folder):
        where = f"127.0.0.1:{one.port}" if one.port else ""
        parts.append(Part(one.name, one.running, where, one.pid, one.rss_bytes, one.log))
    server = hosts.status(folder / "hosts")
    parts.append(_part("hosts", server, server.detail))
    for name, endpoint in sorted(server.hosts.items()):
        where = f"{endpoint.user}@{endpoint.address}:{endpoint.port}"
        parts.append(Part(f"host {name}", server.running, where))
    parts += _real_nodes(folder)
    kubelets = kubelet.status(folder / "kubelet")
    names = ", ".join(kubelets.nodes) or kubelets.detail
    parts.append(_part("kubelets", kubelets, names, kubelets.log, _played(folder)))
    for name, played in (
        ("gpu operator", gpu_operator.status(folder / "gpu_operator")),
        ("rootless nodes", usernetes.status(folder / "usernetes")),
    ):
        if played.log.exists():
            parts.append(_part(name, played, played.detail, played.log))
    issued = issuer.status(folder / "issuer")
    parts.append(_part("issuer", issued, issued.url or "", issued.log))
    return parts


class _Server(Protocol):
    @property
    def running(self) -> bool: ...
    @property
    def pid(self) -> int | None: ...


def _part(
    name: str, server: _Server, where: str, log: Path | None = None, stand_in: str = ""
) -> Part:
    memory_of = memory.of_process(server.pid)
    return Part(name, server.running, where, server.pid or 0, memory_of, log, stand_in)


def _real_nodes(folder: Path) -> list[Part]:
    """The process that holds the real nodes, and each of them; none if the lab has none."""
    found = nodes.status(folder / real_nodes.FOLDER)
    if not found.log.exists():
        return []
    said = kata_runtime.sentence(Kind.REAL)
    held = _part("real nodes", found, found.subnet, found.log, said)
    # Of a node everything that runs on it counts.
    trees = memory.of_trees(node.pid for node in found.nodes.values())
    return [held] + [
        Part(f"node {name}", found.running, node.address, node.pid, trees[node.pid], found.log)
        for name, node in sorted(found.nodes.items())
    ]


def _played(folder: Path) -> str:
    """What pods of Kata's class are on played nodes; nothing where there is no cluster that has it."""
    spec = known(folder)
    if spec is None or not spec.image or spec.kind is Kind.REAL:
        return ""
    return kata_runtime.sentence(Kind.SIMULATED)
