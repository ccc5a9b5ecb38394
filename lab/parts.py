"""What a lab consists of, process by process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    pid: int
    rss_bytes: int
    log: Path | None
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
    parts = [
        Part(
            process.name,
            process.running,
            f"127.0.0.1:{process.port}" if process.port else "",
            process.pid,
            process.rss_bytes,
            process.log,
        )
        for process in control_plane.status(folder)
    ]
    server = hosts.status(folder / "hosts")
    parts.append(
        Part(
            "hosts",
            server.running,
            server.detail,
            server.pid or 0,
            memory.of_process(server.pid),
            None,
        )
    )
    parts += [
        Part(
            f"host {name}",
            server.running,
            f"{endpoint.user}@{endpoint.address}:{endpoint.port}",
            0,
            0,
            None,
        )
        for name, endpoint in sorted(server.hosts.items())
    ]
    parts += _real_nodes(folder)
    kubelets = kubelet.status(folder / "kubelet")
    names = ", ".join(kubelets.nodes) or kubelets.detail
    parts.append(
        Part(
            "kubelets",
            kubelets.running,
            names,
            kubelets.pid or 0,
            kubelets.rss_bytes,
            kubelets.log,
            _played(folder),
        )
    )
    for name, played in (
        ("gpu operator", gpu_operator.status(folder / "gpu_operator")),
        ("rootless nodes", usernetes.status(folder / "usernetes")),
    ):
        if played.log.exists():
            parts.append(
                Part(
                    name,
                    played.running,
                    played.detail,
                    played.pid or 0,
                    played.rss_bytes,
                    played.log,
                )
            )
    issued = issuer.status(folder / "issuer")
    parts.append(
        Part(
            "issuer",
            issued.running,
            issued.url or "",
            issued.pid or 0,
            memory.of_process(issued.pid),
            issued.log,
        )
    )
    return parts


def _real_nodes(folder: Path) -> list[Part]:
    """The process that holds the real nodes, and each of them; none if the lab has none."""
    found = nodes.status(folder / real_nodes.FOLDER)
    if not found.log.exists():
        return []
    held = Part(
        "real nodes",
        found.running,
        found.subnet,
        found.pid or 0,
        memory.of_process(found.pid),
        found.log,
        kata_runtime.sentence(Kind.REAL),
    )
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
