"""The Jobs of a proof, one for each test and node, and the namespace that they run in.

Every Job fits a namespace that enforces `restricted`, which a CIS profile demands: DCGM's diagnostics
are only a client of the node's own host engine, and nothing else of the ladder needs a privilege. No
Job names a RuntimeClass: under CDI the GPUs come with the resource.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from gpuclusters.domain.custom_resource import GROUP
from gpuclusters.domain.ports import ObjectKind
from gpuclusters.domain.proof import Trial
from gpuclusters.domain.proof_inputs import (
    AnyTest,
    BurnTest,
    CollectiveTest,
    DiagnosticsTest,
    LoadTest,
    MatmulTest,
    ProofInputs,
    ProofNode,
)
from gpuclusters.domain.proof_matmul import SECONDS, SIZE

JOB = ObjectKind("batch", "v1", "jobs", "Job", namespaced=True)
CONFIG_MAP = ObjectKind("", "v1", "configmaps", "ConfigMap", namespaced=True)

LABEL = f"{GROUP}/proof"
"""On everything that a proof makes; its value is the test."""
NODE_ANNOTATION = f"{GROUP}/proof-node"
CONTAINER = "proof"
DCGM_PORT = 5555
PROGRAMS: Mapping[Trial, str] = {
    Trial.MATMUL: "matmul.py",
    Trial.DIAGNOSTICS: "diagnostics.sh",
    Trial.LOAD: "load.sh",
}
"""Files of scripts/proof that are mounted; the other tests are programs of their images."""
_FOLDER = "/proof"
_GPU_TAINT = "nvidia.com/gpu"
_USER = 65_534
_SHORT = 40
_PLACES = ("enforce", "audit", "warn")


def namespace(inputs: ProofInputs) -> dict[str, Any]:
    """The namespace, marked as ours."""
    labels = {f"pod-security.kubernetes.io/{place}": "restricted" for place in _PLACES}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": inputs.namespace, "labels": {**labels, LABEL: "namespace"}},
    }


def programs(inputs: ProofInputs, texts: Mapping[str, str]) -> dict[str, Any]:
    """The ConfigMap with what is mounted, named after its content: no Job sees another version of it."""
    told = "\0".join(f"{name}\0{text}" for name, text in sorted(texts.items()))
    name = f"proof-programs-{hashlib.sha256(told.encode()).hexdigest()[:10]}"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": inputs.namespace,
            "labels": {LABEL: "programs"},
        },
        "data": dict(texts),
    }


def name(test: Trial, node: str) -> str:
    """Of a Job; nodes with long names are told apart by a digest."""
    digest = hashlib.sha256(node.encode()).hexdigest()[:8]
    short = node[:_SHORT].rstrip("-.").replace(".", "-")
    return f"proof-{test.value}-{short}-{digest}"[:63]


def concerns(test: Trial, node: ProofNode) -> bool:
    """Whether a test means anything for a node: all but matrices need whole GPUs that nobody shares."""
    if test is Trial.MATMUL:
        return True
    return node.whole_gpus > 1 if test is Trial.COLLECTIVE else node.whole_gpus > 0


def job(
    inputs: ProofInputs,
    test: Trial,
    node: ProofNode,
    *,
    config_map: str,
    image: str,
    host: str = "",
) -> dict[str, Any]:
    """One Job.

    Args:
        inputs: of the proof.
        test: what it runs.
        node: where.
        config_map: name of the ConfigMap with the programs.
        image: by digest.
        host: for diagnostics, where the node's host engine listens.
    """
    part = inputs.test(test)
    if part is None:
        raise ValueError(f"{test} is not described")
    labels = {LABEL: test.value}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name(test, node.name),
            "namespace": inputs.namespace,
            "labels": labels,
            "annotations": {NODE_ANNOTATION: node.name},
        },
        "spec": {
            # A GPU that fails once has failed; a second try would hide it.
            "backoffLimit": 0,
            "activeDeadlineSeconds": part.timeout_seconds,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    **_place(inputs, node.name),
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": _USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [_container(node, image, _command(part, node, host))],
                    "volumes": [
                        {"name": "programs", "configMap": {"name": config_map}},
                        {"name": "memory", "emptyDir": {"medium": "Memory"}},
                    ],
                },
            },
        },
    }


def _container(node: ProofNode, image: str, command: Sequence[str]) -> dict[str, Any]:
    return {
        "name": CONTAINER,
        "image": image,
        "command": list(command),
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 (inside the container)
        "resources": {"limits": {name: str(count) for name, count in node.requests.items()}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "programs", "mountPath": _FOLDER, "readOnly": True},
            {"name": "memory", "mountPath": "/dev/shm"},  # noqa: S108 (NCCL's, 64 MiB by default)
        ],
    }


def _place(inputs: ProofInputs, node: str) -> dict[str, Any]:
    """Through the scheduler, which waits for free GPUs and says so; `nodeName` would be refused at once."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "tolerations": [
            {"key": key, "operator": "Exists"}
            for key in dict.fromkeys((_GPU_TAINT, *inputs.tolerations))
        ],
    }


def _command(part: AnyTest, node: ProofNode, host: str) -> Sequence[str]:
    match part:
        case MatmulTest():
            program = f"{_FOLDER}/{PROGRAMS[Trial.MATMUL]}"
            return ["python3", program, "--size", str(SIZE), "--seconds", str(SECONDS)]
        case DiagnosticsTest(run_level=level):
            return ["sh", f"{_FOLDER}/{PROGRAMS[Trial.DIAGNOSTICS]}", host, str(level)]
        case LoadTest(cuda_major=cuda, seconds=seconds):
            return ["sh", f"{_FOLDER}/{PROGRAMS[Trial.LOAD]}", str(cuda), str(seconds)]
        case BurnTest(seconds=seconds):
            # Relative to the image's folder, as its own Dockerfile has it.
            return ["./gpu_burn", "-tc", str(seconds)]
        case CollectiveTest():
            sizes = ["-b", "8", "-e", "8G", "-f", "2", "-g", str(node.whole_gpus)]
            return ["/usr/local/bin/all_reduce_perf_mpi", *sizes]
