"""Whether a node serves: whether anything new may be placed on it, and whether it is there at all.

A cordon is somebody's wish: the machine is there, and what is done to its GPUs goes on. A node that is
not Ready, or gone, is another matter: nobody knows what is so on it until it is back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Why(StrEnum):
    """Why nothing new is placed on a node; the words of the API's answer."""

    CORDONED = "Cordoned"
    """Somebody took it out of service."""
    NOT_READY = "NotReady"
    """Its kubelet says so, or says nothing any more."""
    GONE = "Gone"
    """The cluster has no such node."""


UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
_TAINTS = (UNREACHABLE, NOT_READY)
"""Of the node controller: they come a moment after the condition, and go a moment after it."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A node on which nothing new is placed."""

    why: Why
    message: str
    """One sentence with the node's name, for operators."""

    @property
    def lost(self) -> bool:
        """Whether nobody can be expected to answer there."""
        return self.why is not Why.CORDONED


def outage_of(name: str, node: Mapping[str, Any] | None) -> Outage | None:
    """Why nothing new is placed on a node; None if something may be."""
    if node is None:
        return Outage(Why.GONE, f"the cluster has no node {name}")
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready: Mapping[str, Any] = next((c for c in conditions if c.get("type") == "Ready"), {})
    if ready.get("status") != "True":
        since = ready.get("lastTransitionTime")
        return Outage(Why.NOT_READY, f"{name} is NotReady" + (f" since {since}" if since else ""))
    spec = node.get("spec") or {}
    if taint := next((t["key"] for t in spec.get("taints") or () if t["key"] in _TAINTS), None):
        return Outage(Why.NOT_READY, f"{name} has the taint {taint}")
    if spec.get("unschedulable"):
        return Outage(Why.CORDONED, f"{name} is cordoned")
    return None


def outages(names: Iterable[str], nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, Outage]:
    """Those of these nodes on which nothing new is placed."""
    found = ((name, outage_of(name, nodes.get(name))) for name in names)
    return {name: outage for name, outage in found if outage is not None}
