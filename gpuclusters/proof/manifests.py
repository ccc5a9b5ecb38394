"""What the proofs run in a cluster, of `manifests/pods.yaml`: namespace, programs, Jobs, the network test."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuclusters.core import scripts
from gpuclusters.core.custom_resource import GROUP
from gpuclusters.core.ports import ObjectKind
from gpuclusters.proof import model

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
LADDER_PROGRAMS = ("reach.py", "train.py")
DCGM_PORT = 5555
REACH = "reach"
"""Of the network test: name of the set, of its service, and value of the label of its pods."""
VECTOR_ADD = "vector-add"
TRAINING = "training"

_POD = {
    **dict.fromkeys(("apart", "grace", "mount", "ports", "subdomain", "volume")),
    "restart": "Never",
}
"""What most pods leave out; a Job's pods are never restarted."""
_RAW = "FashionMNIST/raw"
"""As torchvision keeps the data below its folder."""
_SHORT = 40
_REACH_PORT = 7946
_MASTER_PORT = 29500
_TRY_SHARE = 0.5
"""Of the rung's time the pods try so long; the rest is for images to be pulled."""
_LATER_SECONDS = 90
"""The Job's own deadline comes after ours: it takes the pods away, and with them what they said."""


def texts(names: Iterable[str] = model.PROGRAMS) -> Mapping[str, str]:
    return {name: scripts.read(f"proof/{name}") for name in names}


def _said(part: str, **words: Any) -> Any:
    return scripts.manifest("proof/pods.yaml", {"label": LABEL, **words}, part)


def namespace(name: str) -> dict[str, Any]:
    """The namespace, marked as ours."""
    return dict(_said("namespace", name=name))


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


def job(
    inputs: model.ProofInputs,
    test: model.AnyTest,
    node: model.ProofNode,
    *,
    config_map: str,
    image: str,
    engine: str = "",
) -> dict[str, Any]:
    """The Job of one test on one node; `engine`: address of the node's DCGM."""
    made = _object(JOB, job_name(test.name, node.name), inputs.namespace, test.name)
    made["metadata"]["annotations"] = {NODE_ANNOTATION: node.name}
    command = test.command(node, engine)
    pod = _pod(inputs, [node.name], config_map, image, command, node.requests)
    return _job(made, pod, test.timeout_seconds)


def vector_add(
    inputs: model.LadderInputs, node: model.LadderNode, config_map: str
) -> dict[str, Any]:
    """NVIDIA's sample with one GPU on one node."""
    made = _object(JOB, job_name(VECTOR_ADD, node.name), inputs.namespace, VECTOR_ADD)
    pod = _pod(inputs, [node.name], config_map, inputs.vector_add_image, (), {model.WHOLE: 1})
    return _job(made, pod, inputs.rung_seconds)


def training(inputs: model.LadderInputs, part: model.Training, config_map: str) -> dict[str, Any]:
    """An indexed Job with one pod per node and all its GPUs; a pod's rank is its completion index.

    What a PyTorchJob of Kubeflow would do, without its operator: version 1 of that is at its end, version
    2 is another kind, and neither was seen on these clusters. Programs find their rank by the same variables.
    """
    command = ["python3", f"{model.FOLDER}/train.py", "--data", f"{part.data.path}/{_RAW}"]
    command += ["--epochs", str(part.epochs), "--batch-size", str(part.batch_size)]
    command += ["--gpus", str(inputs.gpus_per_pod)]
    words = {"name": TRAINING, "port": str(_MASTER_PORT), "pods": str(inputs.pods), "index": INDEX}
    env = _said("training-variables", **words)
    data: dict[str, Any] = {"subdomain": TRAINING}
    if part.claim:
        data["mount"] = {"name": "data", "mountPath": part.data.path, "readOnly": True}
        claim = {"claimName": part.claim, "readOnly": True}
        data["volume"] = {"name": "data", "persistentVolumeClaim": claim}
    nodes, limits = [node.name for node in inputs.hosts_of_pods], {model.WHOLE: inputs.gpus_per_pod}
    pod = _pod(inputs, nodes, config_map, part.image, command, limits, env, _MASTER_PORT, **data)
    made = _object(JOB, TRAINING, inputs.namespace, TRAINING)
    seconds = part.patience_seconds(inputs.pods) + _LATER_SECONDS
    return _job(made, pod, seconds, mode="Indexed", pods=inputs.pods)


def headless(inputs: model.LadderInputs, name: str) -> dict[str, Any]:
    spec = _said("headless", labels={LABEL: name})
    return _object(SERVICE, name, inputs.namespace, name) | {"spec": spec}


def reach_set(inputs: model.LadderInputs, config_map: str) -> dict[str, Any]:
    count, labels = len(inputs.hosts_of_pods), {LABEL: REACH}
    command = ["python3", f"{model.FOLDER}/reach.py", "--count", str(count), "--service", REACH]
    command += ["--port", str(_REACH_PORT)]
    command += ["--seconds", str(int(inputs.rung_seconds * _TRY_SHARE))]
    nodes, env = [node.name for node in inputs.hosts_of_pods], _said("reach-variables")
    # Nothing is kept that a graceful end would save.
    how = {"apart": _said("apart", labels=labels), "restart": "Always", "grace": 2}
    pod = _pod(inputs, nodes, config_map, inputs.python_image, command, {}, env, _REACH_PORT, **how)
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = _said("reach", name=REACH, pods=count, labels=labels, template=template)
    return _object(STATEFUL_SET, REACH, inputs.namespace, REACH) | {"spec": spec}


def _object(kind: ObjectKind, name: str, space: str, label: str) -> dict[str, Any]:
    return kind.body(name, space, labels={LABEL: label})


def _job(
    made: dict[str, Any],
    pod: Mapping[str, Any],
    seconds: int,
    mode: str | None = None,
    pods: int | None = None,
) -> dict[str, Any]:
    template = {"metadata": {"labels": made["metadata"]["labels"]}, "spec": pod}
    return made | {"spec": _said("job", seconds=seconds, mode=mode, pods=pods, template=template)}


def _pod(
    inputs: model.ProofInputs | model.LadderInputs,
    nodes: Iterable[str],
    config_map: str,
    image: str,
    command: Sequence[str],
    limits: Mapping[str, int],
    env: Sequence[Mapping[str, Any]] = (),
    port: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A pod on one of these nodes; an empty command is that of its image.

    Through the scheduler, which waits for free GPUs and says so; `nodeName` would be refused at once.
    """
    # A field takes one value only, so that several nodes are several terms.
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        for node in nodes
    ]
    tolerated = dict.fromkeys((model.WHOLE, *inputs.tolerations))
    words = {
        "terms": terms,
        "tolerations": [{"key": key, "operator": "Exists"} for key in tolerated],
        "container": CONTAINER,
        "image": image,
        "command": list(command) or None,
        "env": [{"name": "HOME", "value": "/tmp"}, *env],  # noqa: S108 (inside the container)
        "ports": [{"containerPort": port}] if port else None,
        "limits": {name: str(count) for name, count in limits.items()},
        "folder": model.FOLDER,
        "programs": config_map,
    }
    return dict(_said("pod", **(_POD | words | more)))
