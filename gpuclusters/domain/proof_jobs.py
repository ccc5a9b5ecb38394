"""The Jobs of a proof, one for each test and node, and the namespace that they run in.

Every Job fits a namespace that enforces `restricted`, which a CIS profile demands: DCGM's diagnostics
are only a client of the node's own host engine, and nothing else of the ladder needs a privilege. No
Job names a RuntimeClass: under CDI the GPUs come with the resource.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from gpuclusters.domain.custom_resource import GROUP
from gpuclusters.domain.ports import ObjectKind
from gpuclusters.domain.proof import Trial
from gpuclusters.domain.proof_inputs import ProofInputs, ProofNode
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
    labels = {LABEL: test.value}
    resources = {name: str(count) for name, count in node.requests.items()}
    container = {
        "name": CONTAINER,
        "image": image,
        **_command(inputs, test, node, host),
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 (inside the container)
        "resources": {"limits": resources},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "programs", "mountPath": _FOLDER, "readOnly": True},
            {"name": "memory", "mountPath": "/dev/shm"},  # noqa: S108 (NCCL's, 64 MiB by default)
        ],
    }
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
            "activeDeadlineSeconds": getattr(part, "timeout_seconds", None),
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "affinity": _on(node.name),
                    "tolerations": [
                        {"key": key, "operator": "Exists"}
                        for key in dict.fromkeys((_GPU_TAINT, *inputs.tolerations))
                    ],
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": _USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container],
                    "volumes": [
                        {"name": "programs", "configMap": {"name": config_map}},
                        {"name": "memory", "emptyDir": {"medium": "Memory"}},
                    ],
                },
            },
        },
    }


def _on(node: str) -> dict[str, Any]:
    """Through the scheduler, which waits for free GPUs and says so; `nodeName` would be refused at once."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [{"matchFields": [field]}]
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
        }
    }


def _command(inputs: ProofInputs, test: Trial, node: ProofNode, host: str) -> dict[str, Any]:
    program = f"{_FOLDER}/{PROGRAMS.get(test, '')}"
    match test:
        case Trial.MATMUL:
            words = ["python3", program, "--size", str(SIZE), "--seconds", str(SECONDS)]
        case Trial.DIAGNOSTICS:
            assert inputs.diagnostics is not None  # noqa: S101 (the level asks for it)
            words = ["sh", program, host, str(inputs.diagnostics.run_level)]
        case Trial.LOAD:
            assert inputs.load is not None  # noqa: S101
            words = ["sh", program, str(inputs.load.cuda_major), str(inputs.load.seconds)]
        case Trial.BURN:
            assert inputs.burn is not None  # noqa: S101
            # Relative to the image's folder, as its own Dockerfile has it.
            words = ["./gpu_burn", "-tc", str(inputs.burn.seconds)]
        case Trial.COLLECTIVE:
            sizes = ["-b", "8", "-e", "8G", "-f", "2", "-g", str(node.whole_gpus)]
            words = ["/usr/local/bin/all_reduce_perf_mpi", *sizes]
    return {"command": words}
