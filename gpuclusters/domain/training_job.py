"""Rung 9 as objects: a headless Service and an indexed Job with one pod per node and all its GPUs.

What a PyTorchJob of Kubeflow would do, without its operator: version 1 of that is at its end, version 2
is another kind, and neither was seen on these clusters. A program finds its ranks by the same variables.
"""

from __future__ import annotations

from typing import Any

from gpuclusters.domain import proof_pod
from gpuclusters.domain.ladder_inputs import WHOLE, LadderInputs, Training
from gpuclusters.domain.ladder_pods import POD_IP
from gpuclusters.domain.proof_pod import FOLDER, LABEL
from gpuclusters.domain.proof_wait import INDEX

NAME = "training"
"""Of the Job, of its Service, and value of the label of its pods."""
PROGRAM = "train.py"
MASTER_PORT = 29500
"""PyTorch's usual one."""
_LATER_SECONDS = 90
"""The Job's own deadline comes after ours: it takes the pods away, and with them what they said."""


def job(inputs: LadderInputs, part: Training, config_map: str) -> dict[str, Any]:
    """The Job; pods are told their rank by their completion index."""
    metadata = {"name": NAME, "namespace": inputs.namespace, "labels": {LABEL: NAME}}
    mounts = (
        [{"name": "data", "mountPath": part.data_path, "readOnly": True}] if part.data_claim else []
    )
    claim = {"claimName": part.data_claim, "readOnly": True}
    volumes = [{"name": "data", "persistentVolumeClaim": claim}] if part.data_claim else []
    container = proof_pod.container(
        part.image,
        command(inputs, part),
        {WHOLE: inputs.gpus_per_pod},
        env=[
            {"name": "MASTER_ADDR", "value": f"{NAME}-0.{NAME}"},
            {"name": "MASTER_PORT", "value": str(MASTER_PORT)},
            {"name": "WORLD_SIZE", "value": str(inputs.pods)},
            {
                "name": "RANK",
                "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}},
            },
            POD_IP,
        ],
        mounts=mounts,
        ports=[{"containerPort": MASTER_PORT}],
    )
    spec = proof_pod.spec(
        container,
        proof_pod.on_nodes([node.name for node in inputs.hosts_of_pods], inputs.tolerations),
        config_map=config_map,
        volumes=volumes,
    )
    return proof_pod.job(
        metadata,
        {**spec, "subdomain": NAME},
        timeout_seconds=part.patience_seconds(inputs.pods) + _LATER_SECONDS,
        completionMode="Indexed",
        completions=inputs.pods,
        parallelism=inputs.pods,
    )


def command(inputs: LadderInputs, part: Training) -> list[str]:
    """What each pod runs."""
    words = ["python3", f"{FOLDER}/{PROGRAM}", "--data", part.folder]
    words += ["--epochs", str(part.epochs), "--batch-size", str(part.batch_size)]
    words += ["--gpus", str(inputs.gpus_per_pod), "--seed", str(part.seed)]
    return [*words, *(["--simulated"] if inputs.simulated else [])]
