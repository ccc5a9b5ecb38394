"""What the proofs run in a cluster: a namespace, the programs, Jobs, the StatefulSet of the network test.

All pods fit a namespace that enforces `restricted`, as a CIS profile demands, and none needs a privilege:
DCGM's diagnostics are only a client of the node's own host engine. None names a RuntimeClass: under CDI
the GPUs come with the resource, or the node's default runtime brings them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuclusters.core import scripts
from gpuclusters.core.custom_resource import GROUP
from gpuclusters.core.ports import ObjectKind
from gpuclusters.proof import model
from gpuclusters.proof.checks import ProofTest
from gpuclusters.proof.model import WHOLE, LadderInputs, LadderNode, ProofInputs, ProofNode

JOB = ObjectKind("batch", "v1", "jobs", "Job", namespaced=True)
CONFIG_MAP = ObjectKind("", "v1", "configmaps", "ConfigMap", namespaced=True)
STATEFUL_SET = ObjectKind("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)
SERVICE = ObjectKind("", "v1", "services", "Service", namespaced=True)

LABEL = f"{GROUP}/proof"
"""On everything that a proof makes; its value is the test."""
NODE_ANNOTATION = f"{GROUP}/proof-node"
CONTAINER = "proof"
INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation of the pods of an indexed Job."""
PROGRAMS: Mapping[ProofTest, str] = {
    ProofTest.MATMUL: "matmul.py",
    ProofTest.DIAGNOSTICS: "diagnostics.sh",
    ProofTest.LOAD: "load.sh",
}
"""Files of gpuclusters/proof/scripts that are mounted; the other tests are programs of their images."""
LADDER_PROGRAMS = ("reach.py", "train.py")
DCGM_PORT = 5555
REACH = "reach"
"""Of the network test: name of the set, of its service, and value of the label of its pods."""
VECTOR_ADD = "vector-add"
TRAINING = "training"

FOLDER = "/proof"
_USER = 65_534
_SHORT = 40
_MATMUL = ("--size", "8192", "--seconds", "5")
_REACH_PORT = 7946
_MASTER_PORT = 29500
_TRY_SHARE = 0.5
"""Of the rung's time the pods try so long; the rest is for images to be pulled."""
_LATER_SECONDS = 90
"""The Job's own deadline comes after ours: it takes the pods away, and with them what they said."""


def texts(names: Iterable[str] = tuple(PROGRAMS.values())) -> Mapping[str, str]:
    return {name: scripts.read(f"proof/{name}") for name in names}


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


_NODE_NAME = _field("NODE_NAME", "spec.nodeName")
_POD_NAME = _field("POD_NAME", "metadata.name")
_POD_IP = _field("POD_IP", "status.podIP")


def namespace(name: str) -> dict[str, Any]:
    """The namespace, marked as ours."""
    modes = ("enforce", "audit", "warn")
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in modes}
    metadata = {"name": name, "labels": {**labels, LABEL: "namespace"}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def programs(space: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """The ConfigMap with what is mounted, named after its content: no pod sees another version of it."""
    content = "\0".join(f"{name}\0{text}" for name, text in sorted(texts.items()))
    name = f"proof-programs-{hashlib.sha256(content.encode()).hexdigest()[:10]}"
    return _object(CONFIG_MAP, name, space, "programs") | {"data": dict(texts)}


def job_name(test: str, node: str) -> str:
    """Of a Job for one node; nodes with long names are told apart by a digest."""
    digest = hashlib.sha256(node.encode()).hexdigest()[:8]
    short = node[:_SHORT].rstrip("-.").replace(".", "-")
    return f"proof-{test}-{short}-{digest}"[:63]


def concerns(test: ProofTest, node: ProofNode) -> bool:
    """Whether a test means anything for a node: all but matrices need whole GPUs that nobody shares."""
    if test is ProofTest.MATMUL:
        return True
    return node.whole_gpus > 1 if test is ProofTest.COLLECTIVE else node.whole_gpus > 0


def job(
    inputs: ProofInputs,
    test: ProofTest,
    node: ProofNode,
    *,
    config_map: str,
    image: str,
    engine: str = "",
) -> dict[str, Any]:
    """The Job of one test on one node; `engine`: address of the node's DCGM."""
    part = inputs.test(test)
    if part is None:
        raise ValueError(f"{test} is not described")
    made = _object(JOB, job_name(test.value, node.name), inputs.namespace, test.value)
    made["metadata"]["annotations"] = {NODE_ANNOTATION: node.name}
    container = _container(image, _command(part, node, engine), node.requests)
    pod = _pod(container, [node.name], inputs.tolerations, config_map)
    return _job(made, pod, part.timeout_seconds)


def _command(part: model.AnyTest, node: ProofNode, engine: str) -> Sequence[str]:
    match part:
        case model.Matmul():
            return ["python3", _mounted(PROGRAMS[ProofTest.MATMUL]), *_MATMUL]
        case model.Diagnostics(run_level=level):
            return ["sh", _mounted(PROGRAMS[ProofTest.DIAGNOSTICS]), engine, str(level)]
        case model.Load(cuda_major=cuda, seconds=seconds):
            return ["sh", _mounted(PROGRAMS[ProofTest.LOAD]), str(cuda), str(seconds)]
        case model.Burn(seconds=seconds):
            # Relative to the image's folder, as its own Dockerfile has it.
            return ["./gpu_burn", "-tc", str(seconds)]
        case model.Collective():
            sizes = ["-b", "8", "-e", "8G", "-f", "2", "-g", str(node.whole_gpus)]
            return ["/usr/local/bin/all_reduce_perf_mpi", *sizes]


def vector_add(inputs: LadderInputs, node: LadderNode, config_map: str) -> dict[str, Any]:
    """NVIDIA's sample with one GPU on one node."""
    part = inputs.vector_add
    made = _object(JOB, job_name(VECTOR_ADD, node.name), inputs.namespace, VECTOR_ADD)
    container = _container(part.image, (), {WHOLE: 1})
    pod = _pod(container, [node.name], inputs.tolerations, config_map)
    return _job(made, pod, part.timeout_seconds)


def training(inputs: LadderInputs, part: model.Training, config_map: str) -> dict[str, Any]:
    """An indexed Job with one pod per node and all its GPUs; a pod's rank is its completion index.

    What a PyTorchJob of Kubeflow would do, without its operator: version 1 of that is at its end, version
    2 is another kind, and neither was seen on these clusters. Programs find their rank by the same variables.
    """
    command = ["python3", _mounted("train.py"), "--data", part.folder]
    command += ["--epochs", str(part.epochs), "--batch-size", str(part.batch_size)]
    command += ["--gpus", str(inputs.gpus_per_pod), "--seed", str(part.seed)]
    container = _container(
        part.image,
        [*command, *(["--simulated"] if inputs.simulated else [])],
        {WHOLE: inputs.gpus_per_pod},
        env=[
            {"name": "MASTER_ADDR", "value": f"{TRAINING}-0.{TRAINING}"},
            {"name": "MASTER_PORT", "value": str(_MASTER_PORT)},
            {"name": "WORLD_SIZE", "value": str(inputs.pods)},
            _field("RANK", f"metadata.annotations['{INDEX}']"),
            _POD_IP,
        ],
        port=_MASTER_PORT,
    )
    nodes = [node.name for node in inputs.hosts_of_pods]
    pod = _pod(container, nodes, inputs.tolerations, config_map) | {"subdomain": TRAINING}
    if part.data_claim:
        mount = {"name": "data", "mountPath": part.data_path, "readOnly": True}
        container["volumeMounts"].append(mount)
        claim = {"claimName": part.data_claim, "readOnly": True}
        pod["volumes"].append({"name": "data", "persistentVolumeClaim": claim})
    return _job(
        _object(JOB, TRAINING, inputs.namespace, TRAINING),
        pod,
        part.patience_seconds(inputs.pods) + _LATER_SECONDS,
        completionMode="Indexed",
        completions=inputs.pods,
        parallelism=inputs.pods,
    )


def headless(inputs: LadderInputs, name: str) -> dict[str, Any]:
    """A service that gives every pod of its name a name in the cluster's DNS, ready or not."""
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {LABEL: name}}
    return _object(SERVICE, name, inputs.namespace, name) | {"spec": spec}


def reach_set(inputs: LadderInputs, config_map: str) -> dict[str, Any]:
    """One pod on every node; each looks up others by name and talks to them."""
    count, part = len(inputs.hosts_of_pods), model.smoke(inputs)
    labels = {LABEL: REACH}
    command = ["python3", _mounted("reach.py"), "--count", str(count), "--service", REACH]
    command += ["--port", str(_REACH_PORT)]
    command += ["--seconds", str(int(part.timeout_seconds * _TRY_SHARE))]
    env = [_POD_NAME, _POD_IP, _NODE_NAME]
    container = _container(part.image, command, {}, env=env, port=_REACH_PORT)
    nodes = [node.name for node in inputs.hosts_of_pods]
    pod = _pod(container, nodes, inputs.tolerations, config_map, restart="Always")
    apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    pod["affinity"]["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    # Nothing is kept that a graceful end would save.
    pod["terminationGracePeriodSeconds"] = 2
    spec = {
        "serviceName": REACH,
        "replicas": count,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return _object(STATEFUL_SET, REACH, inputs.namespace, REACH) | {"spec": spec}


def _mounted(program: str) -> str:
    return f"{FOLDER}/{program}"


def _object(kind: ObjectKind, name: str, space: str, label: str) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": space, "labels": {LABEL: label}},
    }


def _job(
    made: dict[str, Any], pod: Mapping[str, Any], timeout_seconds: int, **more: Any
) -> dict[str, Any]:
    """A Job whose pods are tried once."""
    spec = {
        # A GPU that fails once has failed; a second try would hide it.
        "backoffLimit": 0,
        "activeDeadlineSeconds": timeout_seconds,
        **more,
        "template": {"metadata": {"labels": made["metadata"]["labels"]}, "spec": pod},
    }
    return made | {"spec": spec}


def _pod(
    container: Mapping[str, Any],
    nodes: Iterable[str],
    tolerations: Iterable[str],
    config_map: str,
    *,
    restart: str = "Never",
) -> dict[str, Any]:
    """A pod on one of these nodes; a Job's pods are never restarted.

    Through the scheduler, which waits for free GPUs and says so; `nodeName` would be refused at once.
    """
    # A field takes one value only, so that several nodes are several terms.
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        for node in nodes
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {
        "affinity": {"nodeAffinity": required},
        "tolerations": [
            {"key": key, "operator": "Exists"} for key in dict.fromkeys((WHOLE, *tolerations))
        ],
        "restartPolicy": restart,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
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
    }


def _container(
    image: str,
    command: Sequence[str],
    limits: Mapping[str, int],
    *,
    env: Sequence[Mapping[str, Any]] = (),
    port: int | None = None,
) -> dict[str, Any]:
    """The container of a proof; an empty command is that of its image."""
    return {
        "name": CONTAINER,
        "image": image,
        **({"command": list(command)} if command else {}),
        "env": [{"name": "HOME", "value": "/tmp"}, *env],  # noqa: S108 (inside the container)
        "resources": {"limits": {name: str(count) for name, count in limits.items()}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "programs", "mountPath": FOLDER, "readOnly": True},
            {"name": "memory", "mountPath": "/dev/shm"},  # noqa: S108 (NCCL's, 64 MiB by default)
        ],
        **({"ports": [{"containerPort": port}]} if port else {}),
    }
