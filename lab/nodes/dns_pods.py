"""Names of the cluster from pods, as clusters have them.

Where policies are enforced, they open the way to these pods, and to no program of a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.control_plane.kube import KubeApi
from lab.images.names import BUSYBOX
from lab.nodes import dns
from lab.nodes.objects import LABEL

CONFIGURATION = "coredns"
"""Name of the ConfigMap with the Corefile."""
_LABELS = {"k8s-app": dns.SERVICE}
_PROGRAMS = "/programs"
_REPLICAS = 2
_ZONES = f"{dns.DOMAIN} in-addr.arpa ip6.arpa"
COREFILE = f"""\
{_ZONES} {{
    errors
    kubernetes {_ZONES} {{
        ttl 5
    }}
}}
. {{
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""
"""What it is told: it knows the cluster, and every other name does not exist."""

Object = dict[str, Any]


def declare(api: KubeApi, token: str, tools: Mapping[str, Path]) -> None:
    """All of it; a Corefile that is there already is left as it is."""
    for manifest in (*dns.rights(), _account(), _service()):
        api.apply(manifest)
    # What somebody has written into it is theirs.
    if (
        api.request("GET", f"/api/v1/namespaces/{dns.NAMESPACE}/configmaps/{CONFIGURATION}")[0]
        == 404
    ):
        api.create(_configuration())
    api.apply(_pods(token, tools["coredns"].parent))


def _account() -> Object:
    metadata = {"name": dns.NAME, "namespace": dns.NAMESPACE}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _service() -> Object:
    made = dns.service()
    del made["spec"]["internalTrafficPolicy"]
    made["spec"]["selector"] = _LABELS
    return made


def _configuration() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIGURATION, "namespace": dns.NAMESPACE},
        "data": {"Corefile": COREFILE},
    }


def _pods(token: str, programs: Path) -> Object:
    container = {
        "name": dns.NAME,
        "image": BUSYBOX,
        "command": [f"{_PROGRAMS}/coredns", "-conf", "/etc/coredns/Corefile"],
        "readinessProbe": {"tcpSocket": {"port": dns.PORT}, "periodSeconds": 1},
        "volumeMounts": [
            {"name": "programs", "mountPath": _PROGRAMS, "readOnly": True},
            {"name": "configuration", "mountPath": "/etc/coredns", "readOnly": True},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": dns.NAME, "namespace": dns.NAMESPACE, "labels": _LABELS},
        "spec": {
            "replicas": _REPLICAS,
            "selector": {"matchLabels": _LABELS},
            "template": {
                "metadata": {"labels": _LABELS},
                "spec": {
                    "serviceAccountName": dns.NAME,
                    "priorityClassName": "system-cluster-critical",
                    "terminationGracePeriodSeconds": 1,
                    "nodeSelector": {LABEL: token},
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [container],
                    "volumes": [
                        {"name": "programs", "hostPath": {"path": str(programs)}},
                        {"name": "configuration", "configMap": {"name": CONFIGURATION}},
                    ],
                },
            },
        },
    }
