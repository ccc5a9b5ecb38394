"""What the machine wants done, and the three ways in which that can end.

An effect is idempotent and may be done twice, late, or half. It carries the cycle that it is for, so
that an answer from before a hand-over is never taken for one from after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuclusters.lease.model import Reason
from gpuclusters.lease.state import Entry, Pod


@dataclass(frozen=True, slots=True)
class ReadBoard:
    """Ask the fabric manager for its partitions, and the machine which GPUs a process holds open."""

    entries: frozenset[Entry]
    """Those that want to know; the answer is younger than their entry into the phase."""


@dataclass(frozen=True, slots=True)
class Withhold:
    """Say on the machine that nobody else may activate a partition with this GPU, and wait for who does.

    Once it is done, what the fabric manager says of the GPU's partitions stays so, but for the leases.
    """

    entry: Entry


@dataclass(frozen=True, slots=True)
class Unfence:
    """Take the marks of these free GPUs away: whoever comes may activate their partitions."""

    modules: frozenset[int]


@dataclass(frozen=True, slots=True)
class DeactivatePartition:
    """Withhold the GPUs of a partition and take its links down; one that is not active is done."""

    partition: int


@dataclass(frozen=True, slots=True)
class ActivatePartition:
    """Train the links of a partition; its GPUs are withheld no longer.

    `entries` are empty when nobody asks: the layout wants it.
    """

    partition: int
    entries: frozenset[Entry]


@dataclass(frozen=True, slots=True)
class _OnGpu:
    module: int
    cycle: int


class Reset(_OnGpu):
    """Secondary bus reset of one GPU."""

    __slots__ = ()


class ClearMemory(_OnGpu):
    """Clear the memory of one GPU, with a reset."""

    __slots__ = ()


class ReadFirmware(_OnGpu):
    """Read the firmware inventory out of band."""

    __slots__ = ()


class ReadKnobs(_OnGpu):
    """Read the switches of one GPU with the tool on its machine."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _OnPod:
    uid: str
    namespace: str
    name: str


class FindPod(_OnPod):
    """Look whether that very pod still exists; asked when it is not where it should be seen."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AdmitPod(_OnPod):
    """Open the pod's gate towards the host that has its GPUs; refused unless it still waits."""

    lease: str


@dataclass(frozen=True, slots=True)
class DeletePod(_OnPod):
    """Delete that very pod."""

    why: str


Effect = (
    ReadBoard
    | Withhold
    | Unfence
    | DeactivatePartition
    | ActivatePartition
    | Reset
    | ClearMemory
    | ReadFirmware
    | ReadKnobs
    | FindPod
    | AdmitPod
    | DeletePod
)

FABRIC = (ReadBoard, Unfence, DeactivatePartition, ActivatePartition)
"""One at a time per board: what one reads the other changes."""


@dataclass(frozen=True, slots=True)
class BoardSeen:
    """The answer of `ReadBoard`."""

    supported: frozenset[int]
    """Partitions that the fabric manager offers; one with a broken GPU is missing."""
    active: frozenset[int]
    users: frozenset[int]
    """Modules that a process holds open."""
    withheld: frozenset[int] = frozenset()
    """Modules whose partitions nobody but the leases may activate."""


Result = BoardSeen | Mapping[str, str] | Mapping[str, str | None] | Pod | None


@dataclass(frozen=True, slots=True)
class Succeeded:
    """It is done, or this is the answer."""

    effect: Effect
    result: Result = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The world says no, and would say so again: a verdict. `reason` where the effect has several."""

    effect: Effect
    message: str
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """Nobody knows whether it was done: no answer, a lost connection, a time-out. Asked again.

    `reason` is why the GPU is quarantined if that lasts, where it is more than the time that has passed.
    """

    effect: Effect
    message: str
    reason: Reason | None = None


Outcome = Succeeded | Refused | Failed
