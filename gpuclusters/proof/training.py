"""Rung 9 as objects: a headless Service and an indexed Job with one pod per node and all its GPUs.

What a PyTorchJob of Kubeflow would do, without its operator: version 1 of that is at its end, version 2
is another kind, and neither was seen on these clusters. A program finds its ranks by the same variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuclusters.domain import known_errors
from gpuclusters.proof import pod
from gpuclusters.proof.checks import Check
from gpuclusters.proof.ladder import CheckLevel, failed, passed
from gpuclusters.proof.ladder_inputs import WHOLE, LadderInputs, Training
from gpuclusters.proof.ladder_pods import POD_IP
from gpuclusters.proof.pod import FOLDER, LABEL
from gpuclusters.proof.wait import INDEX, Ended

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
    container = pod.container(
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
    spec = pod.spec(
        container,
        pod.on_nodes([node.name for node in inputs.hosts_of_pods], inputs.tolerations),
        config_map=config_map,
        volumes=volumes,
    )
    return pod.job(
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


BACKEND = "nccl"
_BACKEND = re.compile(r"^Using distributed PyTorch with (\w+) backend$", re.MULTILINE)
_BARRIER = re.compile(r"^Passed the barrier with (\d+) nodes, (\d+) ranks$", re.MULTILINE)
_DEVICE = re.compile(r"^Device of rank (\d+): (.+)$", re.MULTILINE)
_EPOCH = re.compile(r"^Train Epoch: (\d+) ", re.MULTILINE)
_TRAINED = re.compile(r"^Trained for ([\d.]+) s, (\d+) epochs$", re.MULTILINE)
_RESULT = re.compile(
    r"^\{metricName: accuracy, metricValue: ([\d.]+)\};\{metricName: loss, metricValue: ([\d.]+|nan|inf)\}",
    re.MULTILINE,
)
_LAST = 300


@dataclass(frozen=True, slots=True)
class TrainingLog:
    """What was said."""

    simulated: bool
    cuda: bool
    backend: str
    nodes: int
    ranks: int
    devices: tuple[str, ...]
    """Name of each rank's device."""
    epoch: int
    """The last one that began."""
    trained_seconds: float
    accuracy: float | None
    loss: str


def parse(log: str) -> TrainingLog:
    """Everything that the log tells; what it does not tell is empty."""
    backend, barrier = _BACKEND.search(log), _BARRIER.search(log)
    trained, result = _TRAINED.search(log), _RESULT.search(log)
    return TrainingLog(
        simulated="This is simulated:" in log,
        cuda=re.search(r"^Using CUDA$", log, re.MULTILINE) is not None,
        backend=backend[1] if backend else "",
        nodes=int(barrier[1]) if barrier else 0,
        ranks=int(barrier[2]) if barrier else 0,
        devices=tuple(name for _, name in _DEVICE.findall(log)),
        epoch=max(map(int, _EPOCH.findall(log)), default=0),
        trained_seconds=float(trained[1]) if trained else 0.0,
        accuracy=float(result[1]) if result else None,
        loss=result[2] if result else "",
    )


def judge(
    inputs: LadderInputs, part: Training, ended: Ended, seconds: float | None = None
) -> Check:
    """Whether a training shows what it must.

    Args:
        inputs: of the ladder.
        part: the training as it was asked for.
        ended: how its Job ended, with the log of rank 0, or of the rank that failed.
        seconds: of the whole Job; None if its status does not tell.
    """
    said = parse(ended.log)
    problems = list(_problems(inputs, part, ended, said))
    if problems:
        way = known_errors.advice("ladder", ended.log, ended.said)
        return failed(CheckLevel.TRAINING, "cluster", "; ".join(problems), way)
    accuracy = said.accuracy or 0.0
    devices = ", ".join(sorted(set(said.devices)))
    whole = said.trained_seconds if seconds is None else seconds
    return passed(
        CheckLevel.TRAINING,
        "cluster",
        f"{said.nodes} nodes with {said.ranks} ranks ({devices}) reach an accuracy of {accuracy:.4f} "
        f"(floor {part.accuracy_floor:g}) in {whole:.0f} s, {said.trained_seconds:g} s of it training",
        nodes=said.nodes,
        gpus=said.ranks,
        epochs=part.epochs,
        batch_size=part.batch_size,
        accuracy=accuracy,
        seconds=whole,
        trained_seconds=said.trained_seconds,
        simulated=int(said.simulated),
    )


def _problems(
    inputs: LadderInputs, part: Training, ended: Ended, said: TrainingLog
) -> Iterator[str]:
    if ended.exit_code is None:
        at = f" in epoch {said.epoch} of {part.epochs}" if said.epoch else ""
        yield f"it did not end{at}: {ended.said}"
        return
    if ended.exit_code:
        words = " ".join(ended.log.split())[-_LAST:]
        yield f"{ended.pod or 'a pod'} ended with {ended.said}: {words or 'it printed nothing'}"
        return
    if said.simulated and not inputs.simulated:
        yield "it was simulated: nothing was calculated on a GPU"
    if not said.simulated and not inputs.simulated:
        if not said.cuda:
            yield "it did not use CUDA"
        if said.backend != BACKEND:
            yield f"the ranks talked over {said.backend or 'nothing'}, wanted {BACKEND}"
    ranks = inputs.pods * inputs.gpus_per_pod
    if (said.nodes, said.ranks) != (inputs.pods, ranks):
        yield (
            f"{said.nodes} nodes and {said.ranks} ranks came to the barrier, wanted {inputs.pods} "
            f"and {ranks}"
        )
    if said.accuracy is None:
        yield "it said no accuracy"
    elif said.accuracy < part.accuracy_floor:
        yield f"accuracy {said.accuracy:.4f} is below the floor {part.accuracy_floor:g}"
