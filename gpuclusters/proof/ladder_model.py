"""What the ladder of a cluster is asked for: nodes, images, how the training runs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from gpuclusters.domain.custom_resource import Name
from gpuclusters.proof import training_times
from gpuclusters.proof.ladder import CLUSTER_RUNGS, CheckLevel
from gpuclusters.proof.model import Part

Seconds = Annotated[int, Field(gt=0, le=86_400)]

NAMESPACE = "gpu-ladder"
VECTOR_ADD_IMAGE = "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0"
"""Of the device plugin's README; CUDA 12 still has code for Volta."""
SMOKE_IMAGE = "docker.io/library/python:3.13.7-alpine3.22"
"""For the network's test where no image with Python is named."""
DATA_PATH = "/opt/pytorch-mnist/data"
"""Where the image that ran on V100s has them."""
_RAW = "FashionMNIST/raw"
"""As torchvision keeps them below its folder."""
_IMAGE = re.compile(
    r"[a-z0-9][a-zA-Z0-9._:/-]*(@sha256:[0-9a-f]{64}|:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127})"
)
_PATH = re.compile(r"/[A-Za-z0-9._/-]+")


def _image(value: str) -> str:
    if not _IMAGE.fullmatch(value) or value.endswith(":latest"):
        raise ValueError(
            "must name an image by digest or by a tag that stays, registry/name:1.2.3 or "
            "registry/name@sha256:…; latest is another image tomorrow"
        )
    return value


def _path(value: str) -> str:
    if not _PATH.fullmatch(value) or ".." in value.split("/"):
        raise ValueError("must be an absolute path inside the container")
    return value


LadderImage = Annotated[str, AfterValidator(_image)]
DataPath = Annotated[str, AfterValidator(_path)]


class LadderNode(Part):
    """One node."""

    name: Name
    gpus: int = Field(ge=1, le=16)
    takes_pods: bool = True
    """False for a control plane that keeps its taint: rungs 6, 8 and 9 leave it out."""


class Smoke(Part):
    """Rung 6: pods of all nodes talk to each other. The image needs Python 3 and nothing else."""

    image: LadderImage = SMOKE_IMAGE
    timeout_seconds: Seconds = 900
    """The pull of the image included, as in all rungs."""


class VectorAdd(Part):
    """Rung 8."""

    image: LadderImage = VECTOR_ADD_IMAGE
    timeout_seconds: Seconds = 900


class Training(Part):
    """Rung 9: PyTorch's DistributedDataParallel over NCCL on FashionMNIST."""

    image: LadderImage
    """With PyTorch for a CUDA that the driver and the GPU know."""
    epochs: int = Field(default=4, ge=1, le=100)
    batch_size: int = Field(default=128, ge=1, le=8192)
    """Of each GPU."""
    accuracy_floor: float = Field(default=0.7, gt=0, lt=1)
    """Share of the test images that must be recognised."""
    pods: int | None = Field(default=None, ge=1)
    """None: one on every node."""
    gpus_per_pod: int | None = Field(default=None, ge=1, le=16)
    """None: all of a node."""
    data_path: DataPath = DATA_PATH
    """Folder that holds FashionMNIST/raw with the four idx files; where a volume is mounted."""
    data_claim: Name | None = None
    """PersistentVolumeClaim of the namespace, mounted read-only. None: the data are baked in."""
    seed: int = 1
    timeout_seconds: Seconds | None = None
    """None: what so many nodes should take by the table, with room, and the pull of the image."""

    @property
    def folder(self) -> str:
        """Where the program finds the idx files."""
        return f"{self.data_path}/{_RAW}"

    def patience_seconds(self, nodes: int) -> int:
        """How long it may take."""
        return self.timeout_seconds or training_times.patience_seconds(nodes, self.epochs)


class LadderInputs(Part):
    """Inputs of the cluster's rungs; whatever changes here makes them be climbed again."""

    cluster: Name
    kubeconfig: str = Field(min_length=1, repr=False)
    rung: int = Field(ge=CLUSTER_RUNGS[0], le=CLUSTER_RUNGS[-1])
    """The highest that is climbed."""
    nodes: tuple[LadderNode, ...]
    namespace: Name = NAMESPACE
    smoke: Smoke | None = None
    vector_add: VectorAdd = VectorAdd()
    training: Training | None = None
    tolerations: tuple[str, ...] = ()
    """Keys of taints beside `nvidia.com/gpu`."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Of what the GPUs depend on: driver, toolkit, device plugin, Kubernetes."""
    programs: str | None = None
    """Digest of the programs that are mounted."""
    settle_seconds: Seconds = 600
    """How long nodes may take to be Ready and to offer their GPUs."""
    timeout_seconds: Seconds = 3600
    """All rungs together; each has its own bound beside it."""
    simulated: bool = False
    """Whether the machines are a lab's: the training runs on the processor, and the evidence says so."""

    @property
    def natural_id(self) -> str:
        """`cluster/ladder`."""
        return f"{self.cluster}/ladder"

    @property
    def highest(self) -> CheckLevel:
        """The last rung."""
        return CheckLevel(self.rung)

    @property
    def hosts_of_pods(self) -> tuple[LadderNode, ...]:
        """The nodes that take pods."""
        return tuple(node for node in self.nodes if node.takes_pods)

    @property
    def gpus_per_pod(self) -> int:
        """Of the training."""
        stated = self.training.gpus_per_pod if self.training else None
        return stated or min((node.gpus for node in self.hosts_of_pods), default=1)

    @property
    def pods(self) -> int:
        """Of the training."""
        stated = self.training.pods if self.training else None
        return stated or len(self.hosts_of_pods)

    @property
    def fingerprint(self) -> str:
        """Over everything but the kubeconfig, which may be renewed, and patience, which shows nothing."""
        shown = self.model_dump(
            mode="json", exclude={"kubeconfig", "settle_seconds", "timeout_seconds"}
        )
        return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()

    @model_validator(mode="after")
    def _can_be_climbed(self) -> Self:
        problems = list(_problems(self))
        if problems:
            raise ValueError("; ".join(problems))
        return self


def _problems(inputs: LadderInputs) -> Iterator[str]:
    names = [node.name for node in inputs.nodes]
    if not names:
        yield "nodes: there is none to prove"
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"nodes: {name} is named twice"
    if inputs.highest is CheckLevel.TRAINING and inputs.training is None:
        yield "training: rung 9 is the training; describe it, or write proof.rung: 8"
    if names and not inputs.hosts_of_pods and inputs.highest >= CheckLevel.NETWORK:
        yield "nodes: none takes pods; write schedule-on-control-plane: true, or add a worker"
    if inputs.training is None or not inputs.hosts_of_pods:
        return
    room = sum(node.gpus // inputs.gpus_per_pod for node in inputs.hosts_of_pods)
    if inputs.pods > room:
        yield (
            f"training: {inputs.pods} pods with {inputs.gpus_per_pod} GPUs each do not fit, {room} do"
        )


def smoke(inputs: LadderInputs) -> Smoke:
    """How rung 6 runs: the training's image, if no other is named, is then there for rung 9 already."""
    if inputs.smoke is not None:
        return inputs.smoke
    return Smoke(image=inputs.training.image if inputs.training else SMOKE_IMAGE)
