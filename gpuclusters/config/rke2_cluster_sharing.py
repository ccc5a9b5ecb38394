"""`sharing` of an `rke2` cluster: whether GPUs are given whole, cut, or to several pods at a time."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from gpuclusters.config.base import DnsLabel, Flag, Integer, Section, Text

Replicas = Annotated[Integer, Field(ge=2, le=64)]
ProfileName = Annotated[Text, Field(max_length=20)]


class MigStrategy(StrEnum):
    """How the device plugin names slices."""

    SINGLE = "single"
    """nvidia.com/gpu counts slices; all of a node are of one profile."""
    MIXED = "mixed"
    """nvidia.com/mig-<profile>, and nvidia.com/gpu for GPUs that are not cut."""


class NotShared(Section):
    """A pod gets whole GPUs."""

    kind: Literal["none"]
    """How GPUs are shared."""


class MigDevices(Section):
    """Some GPUs of a node, and the slices of each."""

    devices: (
        Annotated[tuple[Annotated[Integer, Field(ge=0, le=15)], ...], Field(min_length=1)] | None
    ) = None
    """Which GPUs, by index from 0; all if it is not stated."""
    profiles: dict[ProfileName, Annotated[Integer, Field(ge=1, le=7)]] = Field(default_factory=dict)
    """How many slices of each profile every one of them has; none: they are not cut."""


class Mig(Section):
    """GPUs are cut in hardware; each pool names its layout with `mig`."""

    kind: Literal["mig"]
    """How GPUs are shared."""
    strategy: MigStrategy | None = None
    """single or mixed; by default mixed if any node has several profiles or also whole GPUs."""
    layouts: dict[DnsLabel, tuple[MigDevices, ...]] = Field(default_factory=dict)
    """Layouts of your own, by name, beside all-<profile>, all-balanced and all-disabled."""
    evict: Flag = False
    """Whether pods that use a GPU may be ended for another layout; without it the change is refused while
    there are any."""
    reboot: Flag = False
    """WITH_REBOOT of the MIG manager: clouds need a restart of the machine to switch MIG on."""


class _Shared(Section):
    replicas: Replicas
    """How many pods share one GPU."""
    pools: tuple[DnsLabel, ...] | None = None
    """Pools whose GPUs are shared; all with GPUs if it is not stated."""
    rename: Flag = False
    """Whether the resource is called nvidia.com/gpu.shared, so that nobody gets a share unknowingly."""


class TimeSlicing(_Shared):
    """Pods take turns on whole GPUs, without isolation of memory or faults."""

    kind: Literal["time-slicing"]
    """How GPUs are shared."""
    refuse_more_than_one: Flag = True
    """failRequestsGreaterThanOne: two shares are not two GPUs, so nobody may ask for two."""


class Mps(_Shared):
    """Pods run on a GPU at the same time by CUDA's Multi-Process Service, which is experimental."""

    kind: Literal["mps"]
    """How GPUs are shared."""


Sharing = Annotated[NotShared | Mig | TimeSlicing | Mps, Field(discriminator="kind")]
