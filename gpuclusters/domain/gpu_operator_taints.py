"""Taints of nodes against tolerations of pods, as the scheduler compares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_DAEMON_SETS = "node.kubernetes.io/"
"""The DaemonSet controller tolerates these by itself (not-ready, unreachable, pressure, unschedulable)."""

Object = Mapping[str, Any]


def hard(node: Object) -> list[Object]:
    """The taints of a node that keep pods of DaemonSets away."""
    found = (node.get("spec") or {}).get("taints") or ()
    return [
        taint
        for taint in found
        if taint.get("effect") in ("NoSchedule", "NoExecute")
        and not str(taint["key"]).startswith(_DAEMON_SETS)
    ]


def tolerates(tolerations: Sequence[Object], taint: Object) -> bool:
    """As the scheduler compares them (Kubernetes documentation, taints and tolerations)."""
    for one in tolerations:
        if one.get("effect") not in (None, "", taint.get("effect")):
            continue
        if one.get("operator") == "Exists":
            if one.get("key") in (None, "", taint["key"]):
                return True
        elif one.get("key") == taint["key"] and (one.get("value") or "") == (
            taint.get("value") or ""
        ):
            return True
    return False


def shown(taint: Object) -> str:
    """A taint for people."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"the taint {taint['key']}{value}:{taint['effect']}"
