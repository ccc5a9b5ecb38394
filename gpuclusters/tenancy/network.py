"""What can be known about whether the network policies of a tenant are enforced.

Since 1.16 Cilium says nothing per policy and node. Its operator judges each policy (condition `Valid`)
and says of each node whether the agent is up. Agents take in all policies before they serve a pod. The
policy of all tenants is older than any tenant and closes both directions, so an agent that does not know
a tenant's own policies yet lets too little through, never too much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuclusters.core.finding import Finding

Object = Mapping[str, Any]

AGENT_TAINT = "node.cilium.io/agent-not-ready"
"""Put on a node by Cilium's operator while the agent is down; no tenant's pod tolerates it."""
AGENT_IS_UP = "CiliumIsUp"
"""Reason of the node condition `NetworkUnavailable=False` that Cilium's operator sets."""


def policy(live: Object | None) -> Finding | None:
    """Whether Cilium has taken a policy."""
    if live is None:
        return Finding("tenancy.missing", "it does not exist")
    generation = live.get("metadata", {}).get("generation", 0)
    for condition in live.get("status", {}).get("conditions") or ():
        if condition.get("type") != "Valid":
            continue
        if condition.get("status") != "True":
            said = condition.get("message") or "no reason given"
            return Finding("tenancy.invalid", f"Cilium refuses it: {said}")
        # Cilium's own condition has no observedGeneration; where there is one it must be current.
        if condition.get("observedGeneration", generation) < generation:
            return Finding(
                "tenancy.not-observed", "Cilium has judged an older version of it so far"
            )
        return None
    return Finding(
        "tenancy.not-observed",
        "Cilium has not judged it yet (no condition Valid); does Cilium's operator run?",
    )


def agents(
    wanted: Sequence[str], runtime_classes: Mapping[str, Object], nodes: Sequence[Object]
) -> Finding | None:
    """Whether an agent enforces policies on every node that may run a pod of these runtime classes.

    A node that takes no new pod (not ready, cordoned, tainted by Cilium itself) needs none.
    """
    missing = [name for name in wanted if name not in runtime_classes]
    if missing:
        return Finding(
            "tenancy.no-runtime-class", f"RuntimeClass {', '.join(missing)} does not exist"
        )
    able = [node for node in nodes if _may_run(node, [runtime_classes[name] for name in wanted])]
    down = sorted(node["metadata"]["name"] for node in able if not _agent_is_up(node))
    if down:
        return Finding(
            "tenancy.agent-down",
            f"Cilium's agent is not up on {', '.join(down)}, which may run the tenant's pods "
            f"(no condition NetworkUnavailable=False with reason {AGENT_IS_UP})",
        )
    return None


def node_view(node: Object) -> object:
    """Changes whenever the node might count otherwise in `agents`."""
    spec = node.get("spec") or {}
    tainted = any(taint.get("key") == AGENT_TAINT for taint in spec.get("taints") or ())
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in _conditions(node))
    labels = tuple(sorted((node["metadata"].get("labels") or {}).items()))
    return bool(spec.get("unschedulable")), tainted, ready, _agent_is_up(node), labels


def _may_run(node: Object, classes: Sequence[Object]) -> bool:
    spec, labels = node.get("spec") or {}, node["metadata"].get("labels") or {}
    if spec.get("unschedulable"):
        return False
    if any(taint.get("key") == AGENT_TAINT for taint in spec.get("taints") or ()):
        return False
    if not any(c.get("type") == "Ready" and c.get("status") == "True" for c in _conditions(node)):
        return False
    selectors = [(c.get("scheduling") or {}).get("nodeSelector") or {} for c in classes]
    return not selectors or any(
        all(labels.get(key) == value for key, value in selector.items()) for selector in selectors
    )


def _agent_is_up(node: Object) -> bool:
    return any(
        c.get("type") == "NetworkUnavailable"
        and c.get("status") == "False"
        and c.get("reason") == AGENT_IS_UP
        for c in _conditions(node)
    )


def _conditions(node: Object) -> Sequence[Object]:
    return (node.get("status") or {}).get("conditions") or ()
