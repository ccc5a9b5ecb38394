"""Row 45: every node is one machine, and every machine at most one node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuclusters.config.fault import finding, show, show_values
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.rules.rule import listed_twice, rule
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.core.finding import Finding, Level, Path

MOST_MEASURED = 32
"""Nodes of the largest cluster with Usernetes and V100s that anybody wrote about (size-32, 2025)."""
_SHOWN = 8


def known_machines(config: UsernetesConfig) -> tuple[str, ...] | None:
    """Names of the machines that there are; None in the lab, which makes what is named."""
    match config.hosts:
        case ExistingHosts():
            return tuple(machine.name for machine in config.hosts.machines)
        case GcpHosts():
            return config.hosts.machines
    return None


def named(config: UsernetesConfig) -> Iterator[tuple[Path, str]]:
    """Every place where a node names its machine."""
    yield ("control-plane", "host"), config.control_plane.host
    for number, worker in enumerate(config.workers):
        yield ("workers", number, "host"), worker.host


@rule(45, "usernetes.machine-twice", each=["workers"])
def a_machine_is_one_node(config: UsernetesConfig) -> Iterable[Finding]:
    seen: dict[str, Path] = {}
    for path, name in named(config):
        if name in seen:
            before = seen[name]
            place = "the control plane" if before[0] == "control-plane" else f"workers[{before[1]}]"
            yield finding(path, f"is {place} already", show(name), "name each machine once")
        seen.setdefault(name, path)


@rule(45, "usernetes.machine-unknown", each=["workers"])
def nodes_are_machines_of_hosts(config: UsernetesConfig) -> Iterable[Finding]:
    known = known_machines(config)
    if known is None:
        return
    for path, name in named(config):
        if name not in known:
            more = ", …" if len(known) > _SHOWN else ""
            yield finding(
                path,
                "is none of the machines under hosts",
                show(name),
                f"write one of {show_values(known[:_SHOWN])}{more}, or add it there",
            )


@rule(45, "usernetes.machine-unused", level=Level.WARN)
def every_machine_is_a_node(config: UsernetesConfig) -> Iterable[Finding]:
    used = {name for _, name in named(config)}
    for number, name in enumerate(known_machines(config) or ()):
        if name not in used:
            listed = isinstance(config.hosts, ExistingHosts)
            yield finding(
                ("hosts", "machines", number) if listed else ("hosts", "groups"),
                "is no node"
                if listed
                else f"have {name}, which is no node and costs as much as one",
                show(name),
                "write it under workers with a number, or remove it",
            )


@rule(45, "usernetes.host-twice")
def existing_machines_are_listed_once(config: UsernetesConfig) -> Iterable[Finding]:
    return listed_twice(config.hosts)


@rule(45, "usernetes.group-role", each=["workers"])
def groups_say_what_their_machines_are(config: UsernetesConfig) -> Iterable[Finding]:
    if not isinstance(config.hosts, GcpHosts):
        return
    first = config.control_plane.host
    for path, name in named(config):
        if name not in config.hosts.machines:
            continue
        group = config.hosts.group_of(name)
        role = "controller" if name == first else "worker"
        if group.role != role:
            what = "the control plane" if role == "controller" else "a worker"
            yield finding(
                path,
                f"is {what}, and its group {group.name} says role: {group.role}",
                show(name),
                f"move it to a group with role: {role}",
            )


@rule(45, "usernetes.many-nodes", level=Level.WARN)
def so_many_nodes_were_seen(config: UsernetesConfig) -> Iterable[Finding]:
    nodes = len(config.workers) + 1
    if nodes > MOST_MEASURED:
        yield finding(
            ("workers",),
            f"make a cluster of {nodes} nodes, and {MOST_MEASURED} is the most that anybody wrote about",
            f"a list of {len(config.workers)}",
            "expect joins that take several attempts, or make two clusters",
        )
