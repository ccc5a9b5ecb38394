"""What Cilium would say where no agent and no operator of it runs: tenancies ask for both.

Of nodes whose kubelets are real: that their agent is up. Of policies: that they are valid.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from lab.cluster import NODE, Cluster, ClusterError, ObjectKind
from lab.control_plane.objects import STAND_IN_LABEL
from lab.kubelet.node_objects import timestamp

MANAGER = "gpu-clusters-network-agent"
POLICIES = (
    ObjectKind("cilium.io/v2", "ciliumnetworkpolicies", "CiliumNetworkPolicy"),
    ObjectKind(
        "cilium.io/v2",
        "ciliumclusterwidenetworkpolicies",
        "CiliumClusterwideNetworkPolicy",
        namespaced=False,
    ),
)
_THERE = ("ADDED", "MODIFIED")
_CONDITION = "NetworkUnavailable"
AGENT_IS_UP = "CiliumIsUp"
"""Cilium's `operator/watchers/node_taint.go`: the reason of the condition."""
_RETRY_SECONDS = 1.0
_log = logging.getLogger(__name__)

Object = Mapping[str, Any]


async def keep_up(cluster: Cluster, nodes: Collection[str]) -> None:
    """Keep the condition on these nodes, whoever takes it off: a kubelet that restarts, a node made anew."""

    async def look(node: Object) -> None:
        if node["metadata"]["name"] in nodes:
            await _tell_up(cluster, node)

    await _each(cluster, NODE, look)


async def judge(cluster: Cluster, kind: ObjectKind) -> None:
    """Call every policy of a kind valid on which nobody has passed a verdict yet."""

    async def look(policy: Object) -> None:
        conditions = policy.get("status", {}).get("conditions") or ()
        if "deletionTimestamp" in policy["metadata"] or any(
            c["type"] == "Valid" for c in conditions
        ):
            return
        verdict = {
            "type": "Valid",
            "status": "True",
            "message": "Policy validation succeeded (stand-in, nothing was validated)",
            "lastTransitionTime": timestamp(datetime.now(UTC)),
        }
        metadata, body = policy["metadata"], {"status": {"conditions": [*conditions, verdict]}}
        namespace = metadata.get("namespace", "")
        await cluster.patch(kind, metadata["name"], namespace, body, "status")

    await _each(cluster, kind, look)


async def _each(
    cluster: Cluster, kind: ObjectKind, look: Callable[[Object], Awaitable[None]]
) -> None:
    """Look at every object of a kind, and again whenever it changes."""
    while True:
        try:
            async for event in cluster.watch(kind):
                if event.kind in _THERE:
                    await look(event.object)
        except ClusterError as error:
            _log.warning("%s: %s", kind.plural, error)
            await asyncio.sleep(_RETRY_SECONDS)


async def _tell_up(cluster: Cluster, node: Object) -> None:
    name = node["metadata"]["name"]
    if STAND_IN_LABEL in (node["metadata"].get("labels") or {}):
        # Its kubelet was played before, in this same cluster.
        await cluster.patch(NODE, name, "", {"metadata": {"labels": {STAND_IN_LABEL: None}}})
    if wants_agent(node):
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        status = {"conditions": [condition(datetime.now(UTC))]}
        await cluster.apply(NODE, {**body, "status": status}, manager=MANAGER, subresource="status")
        _log.info("%s: says what Cilium's agent would", name)


def wants_agent(node: Object) -> bool:
    """Whether an agent would run on it by now, and its word is missing."""
    conditions = {c["type"]: c for c in node.get("status", {}).get("conditions") or ()}
    said = conditions.get(_CONDITION, {})
    up = (said.get("status"), said.get("reason")) == ("False", AGENT_IS_UP)
    return not up and conditions.get("Ready", {}).get("status") == "True"


def condition(when: datetime) -> dict[str, Any]:
    return {
        "type": _CONDITION,
        "status": "False",
        "reason": AGENT_IS_UP,
        "message": "no agent runs here (stand-in)",
        "lastHeartbeatTime": timestamp(when),
        "lastTransitionTime": timestamp(when),
    }
