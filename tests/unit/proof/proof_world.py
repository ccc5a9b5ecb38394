"""Clusters that only seem to have GPUs, with an operator or without root, and what their programs print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuclusters.compat import gpu_products
from gpuclusters.core.ports import ObjectKind
from gpuclusters.gpu_operator.objects import CLUSTER_POLICY, EVENT
from gpuclusters.proof import checks
from gpuclusters.proof.checks import CheckLevel
from gpuclusters.proof.evidence import LADDER, About, Evidence
from gpuclusters.proof.manifests import JOB, LABEL, REACH
from gpuclusters.proof.model import LadderInputs
from gpuclusters.tenancy.objects import NAMESPACE, NODE, POD
from gpuclusters.usernetes.decide import HOST_IP
from gpuclusters.usernetes.device_plugin import NAMESPACE as SYSTEM
from gpuclusters.usernetes.device_plugin import PLUGIN_LABELS

A100 = "NVIDIA A100-SXM4-80GB"


def product(name: str) -> str:
    return next(key for key in gpu_products.names() if gpu_products.product(key).name == name)


def line(*devices: dict[str, Any], **changes: Any) -> str:
    whole = [
        {"uuid": f"GPU-{n}", "name": A100, "tflops": 260.0, "error": 2.8e-4, "differ": 0} | device
        for n, device in enumerate(devices)
    ]
    found = {"proof": "matmul", "format": 1, "cpu": False, "driver": "580.1", "devices": whole}
    return "some library warns\n" + json.dumps(found | changes) + "\n"


def diag(*tests: tuple[str, list[str], str | None]) -> str:
    """As DCGM 4 writes it (NVIDIA/DCGM, `testing/python3/tests`): results by entity and a summary."""
    body = [
        {
            "name": name,
            "results": [
                {"entity_group": "GPU", "entity_group_id": 1, "entity_id": n, "status": status}
                for n, status in enumerate(results)
            ],
            **({"test_summary": {"status": summary}} if summary else {}),
        }
        for name, results, summary in tests
    ]
    document = {
        "DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": body}]},
        "metadata": {"version": "4.6.0"},
    }
    return "Successfully connected\n" + json.dumps(document, indent=2)


HEAD = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
ROW = (
    "{size:>12} {count:>12}     float     sum      -1    21395  {bw}  {bw}      {wrong}    "
    "21381  {bw}  {bw}      0\n"
)
TAIL = "# Out of bounds values : {bad} {word}\n# Avg bus bandwidth    : 135.094\n"


IMAGE = "registry.example.com/proof@sha256:" + "a" * 64
DCGM = "nvcr.io/nvidia/cloud-native/dcgm@sha256:" + "d" * 64
TEXTS = {"matmul.py": "print()", "diagnostics.sh": "#", "load.sh": "#"}
LOGS = {
    "matmul": line({}, {}),
    "diagnostics": diag(("memory", ["Pass", "Pass"], "Pass")),
    "load": "tensor load done",
    "burn": "GPU 0: OK\nGPU 1: OK\n",
    "collective": ROW.format(size=8, count=2, bw=376.4, wrong=0) + TAIL.format(bad=0, word="OK"),
}


@dataclass(kw_only=True)
class JobCluster:
    """Objects that a proof makes; every Job ends at once, with the log of its test."""

    ended: dict[str, dict[str, Any]] = field(default_factory=dict)
    """How containers of a test end, if not well."""
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    made: list[dict[str, Any]] = field(default_factory=list)
    stuck: dict[str, Any] | None = None
    """Status of pods of Jobs that never run."""

    @property
    def target(self) -> str:
        return "API server https://x"

    def list(self, kind: ObjectKind, namespace: str = "") -> Sequence[dict[str, Any]]:
        return [body for (k, _), body in self.objects.items() if k == kind.kind and kind != EVENT]

    def get(self, kind: ObjectKind, name: str, namespace: str = "") -> dict[str, Any] | None:
        if kind == NODE:
            return next((n for n in self.list(NODE) if n["metadata"]["name"] == name), None)
        return self.objects.get((kind.kind, name))

    def create(self, kind: ObjectKind, body: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(json.dumps(body))
        self.made.append(made)
        if kind == JOB and not self.stuck:
            done = "Failed" if made["metadata"]["labels"][LABEL] in self.ended else "Complete"
            made["status"] = {
                "conditions": [{"type": done, "status": "True"}],
                "startTime": "2026-11-22T05:00:00Z",
                "completionTime": "2026-11-22T05:02:05Z",
            }
        if "namespace" in made["metadata"]:
            assert (NAMESPACE.kind, made["metadata"]["namespace"]) in self.objects
        self.objects[kind.kind, made["metadata"]["name"]] = made
        return dict(made)

    def delete(self, kind: ObjectKind, name: str, namespace: str = "") -> None:
        self.objects.pop((kind.kind, name), None)

    def left(self) -> Sequence[str]:
        """Kinds of what is still there, but for namespaces."""
        return sorted(kind for kind, _ in self.objects if kind != NAMESPACE.kind)

    def pod_of(self, job: dict[str, Any]) -> dict[str, Any]:
        """The pod of a Job."""
        name, test = job["metadata"]["name"], job["metadata"]["labels"][LABEL]
        over = {"exitCode": 0, "reason": "Completed", **self.ended.get(test, {})}
        container = {"name": "proof", "state": {"terminated": over}}
        owner = {"kind": "Job", "name": name}
        return {
            "metadata": {"name": f"{name}-x", "ownerReferences": [owner]},
            "spec": {},
            "status": self.stuck or {"phase": "Succeeded", "containerStatuses": [container]},
        }


@dataclass(kw_only=True)
class FakeCluster(JobCluster):
    """Nodes with an operator."""

    nodes: tuple[str, ...] = ("n0",)
    driver: str = "580.178.04"
    gpus: str = "2"
    logs: dict[str, str] = field(default_factory=lambda: dict(LOGS))
    tensor: str = "0.93"
    engine: bool = True
    asked: list[str] = field(default_factory=list)

    def list(self, kind: ObjectKind, namespace: str = "") -> Sequence[dict[str, Any]]:
        if kind == NODE:
            labels = {
                "nvidia.com/gpu.present": "true",
                "nvidia.com/cuda.driver-version.full": self.driver,
            }
            offered = {"allocatable": {"nvidia.com/gpu": self.gpus}}
            return [
                {"metadata": {"name": n, "labels": labels}, "status": offered} for n in self.nodes
            ]
        if kind == CLUSTER_POLICY:
            ready = {"type": "Ready", "status": "True", "reason": "Reconciled"}
            return [{"metadata": {"name": "p"}, "status": {"conditions": [ready]}}]
        if kind == POD and namespace == "gpu-operator":
            return [pod for node in self.nodes for pod in self._operands(node)]
        if kind == POD:
            return [self.pod_of(job) for job in super().list(JOB)]
        return super().list(kind)

    def log(self, namespace: str, pod: str, container: str) -> str:
        return self.logs[self.objects["Job", pod.removesuffix("-x")]["metadata"]["labels"][LABEL]]

    def ask(
        self, namespace: str, service: str, port: int, path: str, query: Mapping[str, str]
    ) -> dict[str, Any]:
        self.asked.append(f"{namespace}/{service}:{port}/{path}?{query['query']}")
        series = [
            {"metric": {"pod": f"dcgm-{node}", "UUID": f"GPU-{n}"}, "value": [0, self.tensor]}
            for node in self.nodes
            for n in range(2)
        ]
        return {"data": {"result": series}}

    def jobs(self) -> dict[str, dict[str, Any]]:
        return {b["metadata"]["name"]: b for b in self.made if b["kind"] == "Job"}

    def _operands(self, node: str) -> Sequence[dict[str, Any]]:
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "podIP": "10.42.0.7"}
        ready["containerStatuses"] = [{"name": "c", "ready": True, "imageID": DCGM}]
        apps = ["nvidia-operator-validator", *(["nvidia-dcgm"] if self.engine else [])]
        pods = {f"{app}-{node}": app for app in apps} | {f"dcgm-{node}": "nvidia-dcgm-exporter"}
        return [
            {
                "metadata": {"name": n, "labels": {"app": app}},
                "spec": {"nodeName": node},
                "status": ready,
            }
            for n, app in pods.items()
        ]


NODES = ("a", "b")
UUIDS = ("GPU-11111111-2222-4333-8444-555555555555", "GPU-66666666-7777-4888-8999-aaaaaaaaaaaa")
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

    def version(self) -> str:
        return "v1.34.1-gke.1829001"

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


def climbed(
    *,
    ladder: checks.Ladder = checks.USERNETES,
    level: CheckLevel = CheckLevel.TRAINING,
    about: Mapping[str, Any] = {},
    images: Mapping[str, str] = {},
    programs: Mapping[str, str] = {},
    **figures: Any,
) -> Evidence:
    """Evidence of a training on two nodes."""
    given = {"cluster": "v100", "stack": "lab", "at": "2026-11-22T05:00:00Z", "program": "1"}
    found = {"nodes": 2, "gpus": 2, "epochs": 4, "accuracy": 0.8065, "seconds": 131.0} | figures
    made = [
        ladder.passed(rung, "cluster", "ok", **(found if rung is CheckLevel.TRAINING else {}))
        for rung in ladder.steps
        if rung <= level
    ]
    return Evidence(
        kind=LADDER,
        about=About(**{**given, "api_server": "v1.37.0", **about}),
        level=level.level,
        ladder=ladder,
        checks=made,
        images=images,
        programs=programs,
    )
