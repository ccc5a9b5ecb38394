"""A cluster that only seems to have GPUs, and the output of programs of a proof, for tests."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuclusters.compat import gpu_products
from gpuclusters.core.ports import ObjectKind
from gpuclusters.gpu_operator.objects import CLUSTER_POLICY, EVENT
from gpuclusters.proof.manifests import JOB, LABEL
from gpuclusters.tenancy.objects import NAMESPACE, NODE, POD

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
