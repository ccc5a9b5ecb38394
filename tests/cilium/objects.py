"""What a cluster has of Cilium: its agent on every node, its operator, and the API server as it sees it.

The kinds of its policies are the operator's to make and to judge: no played kubelet, which would judge them
too, belongs into such a lab.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import yaml

from lab.control_plane.kube import KubeApi
from lab.images.names import BUSYBOX
from lab.nodes import dns, proxy
from lab.nodes.objects import LABEL
from tests.cilium import agents

API_PORT = 6443
"""At an address of the nodes' network, where the API server is for Cilium: on no node."""
TAINT = "node.cilium.io/agent-not-ready"
_MERGE = "application/merge-patch+json"


def manifests(
    token: str, folder: Path, tools: Mapping[str, Path], address: str
) -> dict[str, dict[str, Any]]:
    """All of it by name. `folder` is that of the nodes, `address` the API server's in their network."""
    node = f"{folder}/$(K8S_NODE_NAME)"
    commands = {
        "agent": [str(tools["cilium-agent"]), *agents.agent(node)],
        "operator": [str(tools["cilium-operator"]), *agents.operator(node)],
    }
    text = Template(Path(__file__).with_name("manifests.yaml").read_text()).substitute(
        {name: ", ".join(map(json.dumps, words)) for name, words in commands.items()},
        address=address,
        api_port=API_PORT,
        busybox=BUSYBOX,
        coredns=tools["coredns"].parent,
        dns_port=dns.PORT,
        label=LABEL,
        node=node,
        token=json.dumps(token),
        user=agents.USER,
    )
    read: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return read


def declare(api: KubeApi, made: Mapping[str, Any]) -> None:
    """What Cilium itself needs."""
    proxy.await_kubernetes(api)
    # Everybody leads the Service `kubernetes`: labs that lead it themselves have written a label.
    nobody = {"metadata": {"labels": {proxy.NOT_OURS: None}}}
    api.request("PATCH", proxy.KUBERNETES, nobody, _MERGE)
    for name in ("api-server", "rights", "agents", "operator"):
        api.apply(made[name])


def is_up(node: Mapping[str, Any]) -> bool:
    """Whether the operator says of a node that its agent is up."""
    conditions = node.get("status", {}).get("conditions", [])
    said = any(
        c["type"] == "NetworkUnavailable" and c.get("reason") == "CiliumIsUp" for c in conditions
    )
    return said and TAINT not in [taint["key"] for taint in node["spec"].get("taints", [])]
