"""What Cilium would say of nodes whose kubelets are real: no agent runs there, and tenancies ask for one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from lab.cluster import NODE, Cluster, ClusterError
from lab.control_plane.objects import STAND_IN_LABEL
from lab.kubelet.node_objects import timestamp

MANAGER = "gpu-clusters-network-agent"
_THERE = ("ADDED", "MODIFIED")
_CONDITION = "NetworkUnavailable"
AGENT_IS_UP = "CiliumIsUp"
"""Cilium's `operator/watchers/node_taint.go`: the reason of the condition."""
_RETRY_SECONDS = 1.0
_log = logging.getLogger(__name__)


class NetworkAgent:
    """Keeps the condition on these nodes, whoever takes it off: a kubelet that restarts, a node made anew."""

    def __init__(self, cluster: Cluster, nodes: Collection[str]) -> None:
        self._cluster = cluster
        self._nodes = nodes

    async def follow(self) -> None:
        while True:
            try:
                async for kind, node in self._cluster.watch(NODE):
                    if kind in _THERE and node["metadata"]["name"] in self._nodes:
                        await self._look(node)
            except ClusterError as error:
                _log.warning("a real node: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _look(self, node: Mapping[str, Any]) -> None:
        name = node["metadata"]["name"]
        if STAND_IN_LABEL in (node["metadata"].get("labels") or {}):
            # Its kubelet was played before, in this same cluster.
            await self._cluster.patch(
                NODE, name, "", {"metadata": {"labels": {STAND_IN_LABEL: None}}}
            )
        if wants_agent(node):
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            status = {"conditions": [condition(datetime.now(UTC))]}
            await self._cluster.apply(
                NODE, {**body, "status": status}, manager=MANAGER, subresource="status"
            )
            _log.info("%s: says what Cilium's agent would", name)


def wants_agent(node: Mapping[str, Any]) -> bool:
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
