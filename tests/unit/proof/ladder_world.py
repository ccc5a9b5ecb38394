"""A rootless cluster of two hosts that only seems to be there, rung by rung, for tests of the ladder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuclusters.core.ports import ObjectKind
from gpuclusters.proof.manifests import REACH
from gpuclusters.proof.model import LadderInputs
from gpuclusters.tenancy.objects import NODE, POD
from gpuclusters.usernetes.decide import HOST_IP
from gpuclusters.usernetes.device_plugin import NAMESPACE as SYSTEM
from gpuclusters.usernetes.device_plugin import PLUGIN_LABELS
from tests.unit.proof.proof_world import JobCluster

NODES = ("a", "b")
UUIDS = ("GPU-11111111-2222-4333-8444-555555555555", "GPU-66666666-7777-4888-8999-aaaaaaaaaaaa")
IMAGE = f"registry.example.com/train@sha256:{'a' * 64}"
TEXTS = {"reach.py": "#", "train.py": "#"}
VECTORS = "[Vector addition of 50000 elements]\nTest PASSED\nDone\n"
TRAINING = """\
Passed the barrier with 2 nodes, 4 ranks
Train Epoch: 1 [0/60000 (0%)]\tloss=2.3033
Train Epoch: 4 [0/60000 (0%)]\tloss=0.4711
"""


def trained(**changes: Any) -> str:
    """What the program of rung 9 prints."""
    found = {
        "proof": "training",
        "backend": "nccl",
        "nodes": 2,
        "devices": ["Tesla V100-SXM2-16GB"] * 4,
        "trained_seconds": 101.5,
        "accuracy": 0.8065,
        "loss": 0.5279,
    }
    return TRAINING + json.dumps(found | changes) + "\n"


def inputs(rung: int = 9, **changes: Any) -> LadderInputs:
    given: dict[str, Any] = {
        "cluster": "v100",
        "kubeconfig": "secret",
        "rung": rung,
        "nodes": [{"name": name, "gpus": 2} for name in NODES],
        "training": {"image": IMAGE},
        "settle_seconds": 20,
    }
    return LadderInputs.model_validate(given | changes, by_name=True)


def host(**changes: str) -> str:
    """What the script prints on a host where all is well; a section by name is replaced."""
    listing = "".join(
        f"GPU {n}: Tesla V100-SXM2-16GB (UUID: {uuid})\n" for n, uuid in enumerate(UUIDS)
    )
    info = {
        "ServerVersion": "29.7.2",
        "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"],
        "Runtimes": {"runc": {}},
        "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
        "DiscoveredDevices": [
            {"Source": "cdi", "ID": f"nvidia.com/gpu={name}"} for name in ("all", *UUIDS)
        ],
    }
    names = "".join(f"nvidia.com/gpu={name}\n" for name in (*UUIDS, "all"))
    sections = {
        "nvidia-smi": f"0\n{listing}",
        "module": "0\n580.159.04\nNVIDIA\n",
        "docker-info": f"0\n{json.dumps(info)}\n",
        "docker-run": f"0\n{listing}",
        "node-cdi": f'0\ntime="x" level=info msg="Found 3 CDI devices"\n{names}',
    }
    sections |= {name.replace("_", "-"): text for name, text in changes.items()}
    return "".join(f"== {name} {text}" for name, text in sections.items())


def reached(node: str, **failed: str) -> str:
    """What the program of rung 6 prints on a node."""
    peers = [{"peer": name, "failed": why, "seconds": 60.0} for name, why in failed.items()]
    peers = peers or [{"peer": "reach-1", "node": "other", "seconds": 0.02}]
    return json.dumps({"proof": "reach", "format": 1, "node": node, "peers": peers}) + "\n"


@dataclass(kw_only=True)
class LadderCluster(JobCluster):
    """Every object that is made is played at once."""

    gpus: dict[str, str] = field(default_factory=lambda: dict.fromkeys(NODES, "2"))
    ready: dict[str, str] = field(default_factory=lambda: dict.fromkeys(NODES, "True"))
    external: dict[str, str] = field(
        default_factory=lambda: {name: f"203.0.113.{n}" for n, name in enumerate(NODES)}
    )
    plugin: dict[str, Any] = field(default_factory=dict)
    """State of the plugin's container on the nodes that lack GPUs."""
    logs: dict[str, str] = field(
        default_factory=lambda: {
            "vector-add": VECTORS,
            "training": trained(),
            "plugin": "",
            **{f"{REACH}-{n}": reached(name) for n, name in enumerate(NODES)},
        }
    )
    foreign: set[str] = field(default_factory=set)
    """Nodes that joined in another way."""
    pools: dict[str, str] = field(default_factory=dict)
    """Node pools of Google's, by node."""
    plugin_labels: Mapping[str, str] = field(default_factory=lambda: dict(PLUGIN_LABELS))
    containers: set[str] = field(default_factory=set)
    """Of the plugin, whose logs were asked for."""
    pending: str = ""
    """Why pods of the network's test do not run."""
    crashing: dict[str, Any] = field(default_factory=dict)
    """State of their container, if it is started again and again."""

    def list(self, kind: ObjectKind, namespace: str = "") -> Sequence[dict[str, Any]]:
        if kind == NODE:
            return [self._node(name) for name in self.gpus]
        if kind == POD and namespace == SYSTEM:
            return [self._plugin(name) for name in self.gpus]
        if kind == POD:
            return [pod for body in [*self.objects.values()] for pod in self._pods(body)]
        return super().list(kind)

    def log(self, namespace: str, pod: str, container: str) -> str:
        if pod.startswith("plugin-"):
            self.containers.add(container)
            return self.logs["plugin"]
        label = next((test for test in ("vector-add", "training") if test in pod), pod)
        return self.logs[label]

    def _node(self, name: str) -> dict[str, Any]:
        address = self.external.get(name)
        labels = {} if name in self.foreign else {HOST_IP: address or ""}
        if name in self.pools:
            labels = {"cloud.google.com/gke-nodepool": self.pools[name]}
        return {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
            "status": {
                "allocatable": {"nvidia.com/gpu": self.gpus[name]},
                "conditions": [
                    {"type": "Ready", "status": self.ready[name], "message": "kubelet stopped"}
                ],
                "addresses": [{"type": "ExternalIP", "address": address}] if address else [],
                "nodeInfo": {"kubeletVersion": "v1.37.0"},
            },
        }

    def _plugin(self, node: str) -> dict[str, Any]:
        one = {"name": "nvidia-device-plugin-ctr", "image": "p", "restartCount": 3, **self.plugin}
        return {
            "metadata": {"name": f"plugin-{node}", "labels": dict(self.plugin_labels)},
            "spec": {"nodeName": node},
            "status": {"phase": "Running", "containerStatuses": [one]},
        }

    def _pods(self, body: dict[str, Any]) -> Sequence[dict[str, Any]]:
        name = body["metadata"]["name"]
        labels = body["metadata"].get("labels") or {}
        if body["kind"] == "StatefulSet":
            count, phase = body["spec"]["replicas"], "Pending" if self.pending else "Running"
            waits = {"type": "PodScheduled", "status": "False", "message": self.pending}
            ready = {"type": "Ready", "status": str(not self.crashing)}
            status = {
                "phase": phase,
                "conditions": [waits if self.pending else ready],
                "containerStatuses": [{"name": "proof", **self.crashing}] if self.crashing else [],
            }
            meta = [{"name": f"{name}-{n}", "labels": labels} for n in range(count)]
            return [{"metadata": one, "spec": {}, "status": status} for one in meta]
        return [self.pod_of(body)] if body["kind"] == "Job" else []
