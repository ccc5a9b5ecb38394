"""`proof` and `metrics` of a `usernetes` cluster: how far up the ladder of proofs it has to come."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from gpuclusters.config.base import (
    Count,
    DnsLabel,
    Integer,
    PinnedImage,
    Seconds,
    Section,
    Text,
    checked,
    refusal,
)

DATA_FOLDER = "/opt/pytorch-mnist/data"
"""Where the image that ran on V100s in 2025 keeps it."""
_DOTTED = re.compile(r"[0-9]{1,2}\.[0-9]{1,2}(\.[0-9]{1,2})?")
_FOLDER = re.compile(r"(/[A-Za-z0-9._-]+)+")


def _dotted(value: str) -> str:
    if not _DOTTED.fullmatch(value):
        raise refusal("is not a version", 'write its numbers in quotes: "12.6"')
    return value


def _folder(value: str) -> str:
    if not _FOLDER.fullmatch(value) or ".." in value.split("/"):
        raise refusal("is not a folder within a container", "write one like /data, from / on")
    return value


def _none(value: Any) -> Any:
    return None if value == "none" else value


Dotted = Annotated[Text, AfterValidator(_dotted)]
Folder = Annotated[Text, AfterValidator(_folder)]


class BakedData(Section):
    """The image has the data: nothing is downloaded, and no server can be down."""

    source: Literal["baked"]
    """Where the data is."""
    path: Folder = DATA_FOLDER
    """Folder in the image that has FashionMNIST/raw."""


class VolumeData(Section):
    """A volume has the data; every pod must be able to mount it."""

    source: Literal["volume"]
    """Where the data is."""
    claim: DnsLabel
    """PersistentVolumeClaim in the proof's namespace."""
    path: Folder = "/data"
    """Where it is mounted; it has FashionMNIST/raw."""


class Training(Section):
    """A training over all nodes by PyTorch DDP and NCCL: one pod for each node, as an indexed Job."""

    image: PinnedImage
    """Image with PyTorch for CUDA, by digest."""
    cuda: Annotated[Dotted | None, checked(54)] = None
    """CUDA in the image, "12.6". Volta has none after 12.9."""
    pytorch: Annotated[Dotted | None, checked(54)] = None
    """PyTorch in the image, "2.7". From 2.8 on only builds for CUDA 12.6 have code for Volta."""
    largest_uid: Annotated[Integer | None, Field(ge=0, le=4_294_967_295), checked(54)] = None
    """Largest uid or gid that owns a file in the image. Above 65535 rootless engines cannot unpack it."""
    pods: Count | None = None
    """How many pods; by default one on every node that takes pods."""
    gpus_per_pod: Count | None = None
    """GPUs of each pod; by default all of a node."""
    epochs: Annotated[Integer, Field(ge=1, le=100)] = 4
    """Passes over the data."""
    batch_size: Annotated[Integer, Field(ge=1, le=8192)] = 128
    """Pictures of one step on one GPU."""
    accuracy_floor_percent: Annotated[Integer, Field(ge=1, le=99)] = 70
    """Least accuracy, in percent. FashionMNIST came to about 81 after 4 epochs on two nodes."""
    data: Annotated[BakedData | VolumeData, Field(discriminator="source")] = Field(
        default_factory=lambda: BakedData.model_validate({"source": "baked"})
    )
    """Where FashionMNIST is."""
    timeout_seconds: Seconds | None = None
    """How long it may take, the pull of the image included; by default what so many nodes took in 2025,
    with room. The network costs: 32 nodes took 6 minutes where a managed cluster takes 46 seconds."""


class UsernetesProof(Section):
    """What has to be shown: rungs of a ladder, each with a message of its own (docs/usernetes-proof.md)."""

    rung: Annotated[Integer, Field(ge=1, le=9)] = 8
    """Highest rung. 1 to 4 are on the hosts, 5 nodes, 6 DNS across nodes, 7 allocatable GPUs, 8 one pod
    calculates, 9 a training over all nodes."""
    namespace: DnsLabel = "gpu-proof"
    """Namespace of its pods, made by this program."""
    network_image: PinnedImage | None = None
    """Image of rung 6, by digest, with Python 3; by default that of the training, else Python's own."""
    vector_add_image: PinnedImage | None = None
    """Image of rung 8, by digest, with NVIDIA's sample vectorAdd; by default NVIDIA's own for CUDA 12.5."""
    training: Annotated[
        Training | None,
        BeforeValidator(_none, json_schema_input_type=Training | Literal["none"] | None),
    ] = None
    """The training of rung 9; none if it is not stated."""


class NoExporter(Section):
    """Nobody reports what the GPUs do."""

    kind: Literal["none"]
    """Who reports."""


class DcgmExporter(Section):
    """NVIDIA's DCGM exporter as a DaemonSet, on port 9400 of its pods. Nothing collects what it reports."""

    kind: Literal["dcgm-exporter"]
    """Who reports."""


Exporter = Annotated[NoExporter | DcgmExporter, Field(discriminator="kind")]
