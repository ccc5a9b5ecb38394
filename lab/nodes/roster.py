"""Which nodes a lab has, under which numbers, and what a changed wish means for those that run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from lab.nodes.model import NodesSpec


@dataclass(frozen=True, slots=True)
class Changes:
    """What has to be done to running nodes; one that is made anew is both `removed` and `added`."""

    removed: frozenset[str]
    added: frozenset[str]
    relabelled: frozenset[str]


def numbers(names: Collection[str], known: Mapping[str, int]) -> dict[str, int]:
    """A number for each node: the one that it had, else the lowest that is free."""
    kept = {name: number for name, number in known.items() if name in names}
    free = (number for number in range(len(names)) if number not in kept.values())
    return kept | {name: next(free) for name in names if name not in kept}


def must_restart(running: NodesSpec, wanted: NodesSpec) -> str:
    """What of a wish only another process can do, in words; empty when there is nothing of it."""
    if running.control_plane != wanted.control_plane:
        return "they are to join another control plane"
    if running.hosts != wanted.hosts:
        return "their hosts lie elsewhere"
    if running.network != wanted.network:
        return f"their network is to be {wanted.network}"
    return ""


def changes(running: NodesSpec, wanted: NodesSpec) -> Changes:
    """What changed about nodes. Labels can be changed; with anything else a node is made anew."""
    before = {node.name: node for node in running.nodes}
    after = {node.name: node for node in wanted.nodes}
    both = before.keys() & after.keys()
    anew = {
        name
        for name in both
        if replace(before[name], labels={}) != replace(after[name], labels={})
        or running.devices.get(name, {}) != wanted.devices.get(name, {})
        or (name in running.joins) != (name in wanted.joins)
    }
    return Changes(
        removed=frozenset(before.keys() - after.keys() | anew),
        added=frozenset(after.keys() - before.keys() | anew),
        relabelled=frozenset(
            name for name in both - anew if dict(before[name].labels) != dict(after[name].labels)
        ),
    )
