"""What the pods of every proof have in common, and the namespace that they run in.

All of them fit a namespace that enforces `restricted`, which a CIS profile demands. None names a
RuntimeClass: under CDI the GPUs come with the resource, or the node's default runtime brings them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuclusters.domain.custom_resource import GROUP
from gpuclusters.domain.ports import ObjectKind

JOB = ObjectKind("batch", "v1", "jobs", "Job", namespaced=True)
CONFIG_MAP = ObjectKind("", "v1", "configmaps", "ConfigMap", namespaced=True)

LABEL = f"{GROUP}/proof"
"""On everything that a proof makes; its value is the test."""
CONTAINER = "proof"
FOLDER = "/proof"
"""Where the programs are mounted."""
_GPU_TAINT = "nvidia.com/gpu"
_USER = 65_534
_SHORT = 40
_PLACES = ("enforce", "audit", "warn")


def namespace(name: str) -> dict[str, Any]:
    """The namespace, marked as ours."""
    labels = {f"pod-security.kubernetes.io/{place}": "restricted" for place in _PLACES}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {**labels, LABEL: "namespace"}},
    }


def programs(space: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """The ConfigMap with what is mounted, named after its content: no pod sees another version of it."""
    told = "\0".join(f"{name}\0{text}" for name, text in sorted(texts.items()))
    name = f"proof-programs-{hashlib.sha256(told.encode()).hexdigest()[:10]}"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": space, "labels": {LABEL: "programs"}},
        "data": dict(texts),
    }


def job_name(test: str, node: str) -> str:
    """Of a Job for one node; nodes with long names are told apart by a digest."""
    digest = hashlib.sha256(node.encode()).hexdigest()[:8]
    short = node[:_SHORT].rstrip("-.").replace(".", "-")
    return f"proof-{test}-{short}-{digest}"[:63]


def job(
    metadata: Mapping[str, Any], spec: Mapping[str, Any], *, timeout_seconds: int, **more: Any
) -> dict[str, Any]:
    """A Job whose pods are tried once.

    Args:
        metadata: with the labels, which its pods get too.
        spec: of its pods.
        timeout_seconds: its deadline.
        more: other fields of its spec.
    """
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": dict(metadata),
        "spec": {
            # A GPU that fails once has failed; a second try would hide it.
            "backoffLimit": 0,
            "activeDeadlineSeconds": timeout_seconds,
            **more,
            "template": {"metadata": {"labels": metadata["labels"]}, "spec": dict(spec)},
        },
    }


def spec(
    container: Mapping[str, Any],
    place: Mapping[str, Any],
    *,
    config_map: str,
    volumes: Sequence[Mapping[str, Any]] = (),
    restart: str = "Never",
) -> dict[str, Any]:
    """Of a pod.

    Args:
        container: its only one.
        place: where it runs, of `on_nodes`.
        config_map: name of the ConfigMap with the programs.
        volumes: beside the programs and shared memory.
        restart: policy; a Job's pods are never restarted.
    """
    return {
        **place,
        "restartPolicy": restart,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [dict(container)],
        "volumes": [
            {"name": "programs", "configMap": {"name": config_map}},
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
            *map(dict, volumes),
        ],
    }


def container(
    image: str,
    command: Sequence[str],
    limits: Mapping[str, int],
    *,
    env: Sequence[Mapping[str, Any]] = (),
    mounts: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> dict[str, Any]:
    """The container of a proof; an empty command is that of its image."""
    return {
        "name": CONTAINER,
        "image": image,
        **({"command": list(command)} if command else {}),
        "env": [{"name": "HOME", "value": "/tmp"}, *map(dict, env)],  # noqa: S108 (inside the container)
        "resources": {"limits": {name: str(count) for name, count in limits.items()}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "programs", "mountPath": FOLDER, "readOnly": True},
            {"name": "memory", "mountPath": "/dev/shm"},  # noqa: S108 (NCCL's, 64 MiB by default)
            *map(dict, mounts),
        ],
        **more,
    }


def on_nodes(nodes: Iterable[str], tolerations: Iterable[str]) -> dict[str, Any]:
    """Through the scheduler, which waits for free GPUs and says so; `nodeName` would be refused at once."""
    # A field takes one value only, so that several nodes are several terms.
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        for node in nodes
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {
        "affinity": {"nodeAffinity": required},
        "tolerations": [
            {"key": key, "operator": "Exists"} for key in dict.fromkeys((_GPU_TAINT, *tolerations))
        ],
    }
