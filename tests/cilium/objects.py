"""What a cluster has of Cilium: its agent on every node, its operator, and the API server as it sees it.

The kinds of its policies are the operator's to make and to judge: no played kubelet, which would judge them
too, belongs into such a lab.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.control_plane.kube import KubeApi
from lab.images.names import BUSYBOX
from lab.nodes import dns, proxy
from lab.nodes.objects import LABEL
from tests.cilium import agents as agents_

API_PORT = 6443
"""At an address of the nodes' network, where the API server is for Cilium: on no node."""
TAINT = "node.cilium.io/agent-not-ready"
_MERGE = "application/merge-patch+json"
_NODE = "K8S_NODE_NAME"
_HOST = "/host"
# Those of Cilium's Helm chart without SYS_MODULE and SYS_RESOURCE, which root may not have itself,
# and with the one for another root. API servers of a lab allow no privileged pods.
_CAPABILITIES = (
    *("CHOWN", "KILL", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "SYS_ADMIN", "DAC_OVERRIDE", "FOWNER"),
    *("SETGID", "SETUID", "SYSLOG", "BPF", "PERFMON", "SYS_CHROOT"),
)
_EVERYWHERE = [{"operator": "Exists"}]

Object = dict[str, Any]


def declare(
    api: KubeApi, token: str, folder: Path, tools: Mapping[str, Path], address: str
) -> None:
    """All of it. `folder` is that of the nodes, `address` the API server's in their network."""
    proxy.await_kubernetes(api)
    _led_by_everybody(api)
    for manifest in (
        api_server(address),
        _rights(),
        agents(token, folder, tools),
        operator(token, folder, tools),
    ):
        api.apply(manifest)


def is_up(node: Mapping[str, Any]) -> bool:
    """Whether the operator says of a node that its agent is up."""
    conditions = node.get("status", {}).get("conditions", [])
    said = any(
        c["type"] == "NetworkUnavailable" and c.get("reason") == "CiliumIsUp" for c in conditions
    )
    return said and TAINT not in [taint["key"] for taint in node["spec"].get("taints", [])]


def api_server(address: str) -> Object:
    """Where the Service `kubernetes` leads: out of the nodes, so that Cilium knows what is there."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": API_PORT, "protocol": "TCP"}],
    }


def agents(token: str, folder: Path, tools: Mapping[str, Path]) -> Object:
    """The agent of every node of this lab, under the label by which the operator finds its pods."""
    health = {"host": "127.0.0.1", "path": "/healthz", "port": 9879}
    healthy = {"httpGet": health | {"httpHeaders": [{"name": "brief", "value": "true"}]}}
    container = _in_the_node(
        tools["cilium-agent"],
        agents_.agent(f"{folder}/$({_NODE})"),
        _path(folder),
        startupProbe={**healthy, "failureThreshold": 300, "periodSeconds": 1},
        livenessProbe={
            **healthy,
            "periodSeconds": 30,
            "failureThreshold": 10,
            "timeoutSeconds": 5,
        },
        readinessProbe={**healthy, "periodSeconds": 5, "timeoutSeconds": 5},
    )
    return _workload("DaemonSet", "cilium", {"k8s-app": "cilium"}, token, container)


def operator(token: str, folder: Path, tools: Mapping[str, Path]) -> Object:
    health = {"httpGet": {"host": "127.0.0.1", "path": "/healthz", "port": 9234}}
    container = _in_the_node(
        tools["cilium-operator"],
        agents_.operator(f"{folder}/$({_NODE})"),
        _path(folder),
        livenessProbe={**health, "initialDelaySeconds": 60, "timeoutSeconds": 3},
        readinessProbe={**health, "periodSeconds": 5, "timeoutSeconds": 3},
    )
    made = _workload("Deployment", "cilium-operator", {"name": "cilium-operator"}, token, container)
    # Two would want the same port of a node.
    made["spec"] |= {"replicas": 1, "strategy": {"type": "Recreate"}}
    return made


def _led_by_everybody(api: KubeApi) -> None:
    """Take from the Service `kubernetes` the label of labs that lead it themselves."""
    nobody = {"metadata": {"labels": {proxy.NOT_OURS: None}}}
    api.request("PATCH", proxy.KUBERNETES, nobody, _MERGE)


def _rights() -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": agents_.USER},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            # It also makes the kinds that it knows.
            "name": "cluster-admin",
        },
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": agents_.USER}
        ],
    }


def _path(folder: Path) -> str:
    """Where programs in a node find others: those of the lab, then the machine's."""
    return f"{folder}/$({_NODE})/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _in_the_node(program: Path, options: Sequence[str], path: str, **probes: Object) -> Object:
    """A container whose program sees the file system of the node, as a program of the node does."""
    return {
        "name": program.name,
        "image": BUSYBOX,
        "command": ["/bin/busybox", "chroot", _HOST, str(program), *options],
        "env": [
            {"name": _NODE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "CILIUM_K8S_NAMESPACE", "value": dns.NAMESPACE},
            {"name": "PATH", "value": path},
            {"name": "HOME", "value": "/root"},
            # On another disk than the configuration of CNI, which is moved from there to its place else:
            # containerd does not notice that.
            {"name": "TMPDIR", "value": "/run"},
        ],
        "securityContext": {
            "capabilities": {"add": list(_CAPABILITIES), "drop": ["ALL"]},
            "seccompProfile": {"type": "Unconfined"},
        },
        "volumeMounts": [
            {"name": "node", "mountPath": _HOST, "mountPropagation": "HostToContainer"}
        ],
        **probes,
    }


def _workload(
    kind: str, name: str, labels: Mapping[str, str], token: str, container: Object
) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": dns.NAMESPACE, "labels": dict(labels)},
        "spec": {
            "selector": {"matchLabels": dict(labels)},
            "template": {
                "metadata": {"labels": dict(labels)},
                "spec": {
                    "hostNetwork": True,
                    "hostPID": True,
                    "priorityClassName": "system-node-critical",
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 1,
                    "nodeSelector": {LABEL: token},
                    "tolerations": _EVERYWHERE,
                    "containers": [container],
                    "volumes": [{"name": "node", "hostPath": {"path": "/"}}],
                },
            },
        },
    }
