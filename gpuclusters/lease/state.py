"""A GPU's lease as the machine sees it, the pods that hold leases, and what the machine is told to obey.

The machine has three parts: what is so (`Lease`, `Pod` here, `Board` in `board.py`), what is
wanted of the world (`effects.py`), and what follows (`decide.py`). It is pure: whoever
drives it does the effects and the writing, and may be killed between any two of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gpuclusters.fabric.table import Partition
from gpuclusters.lease.firmware import Golden
from gpuclusters.lease.model import ConditionType, Holder, Phase, RecyclePolicy

Entry = tuple[int, int, Phase]
"""One stay of a GPU in a phase: module, cycle, phase. What was learnt in one proves nothing in another."""


@dataclass(frozen=True, slots=True)
class NodeLost:
    """The host's node is lost: not Ready, or gone. Nobody can be expected to answer there."""

    since: float
    """When that was first seen, by the clock of `decide`'s `now`."""
    message: str
    """One sentence with the node's name."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One GPU's lease. `deadline` is by the clock of `decide`'s `now`; None in a phase without limit."""

    module: int
    phase: Phase
    cycle: int
    holder: Holder | None = None
    deadline: float | None = None
    shown: frozenset[ConditionType] = frozenset()
    """What has been shown in this cycle."""
    reason: str = ""
    message: str = ""
    recheck: str = ""
    """The last recheck that was obeyed, and in `recheck_cycle` the cycle that it began."""
    recheck_cycle: int = 0
    recheck_asked: str = ""
    """The value of the annotation as it is now."""
    disputed: bool = False
    """The device plugin found the kubelet to have given the GPU to another pod than the lease's."""
    last_tenant: str = ""
    """Who had the GPU last, from the end of the holding until it is free."""

    @property
    def entry(self) -> Entry:
        """This stay in this phase."""
        return (self.module, self.cycle, self.phase)


class PodState(StrEnum):
    """What matters of a pod to whoever holds GPUs for it."""

    WAITING = "waiting"
    """Behind its gate."""
    GOING = "going"
    """Its gate is open; on its way to a node, or running."""
    ENDING = "ending"
    """Being deleted; something of it may still run."""
    ENDED = "ended"
    """Succeeded or failed; nothing of it runs."""
    GONE = "gone"
    """Not in the API any more."""


OVER = frozenset({PodState.ENDED, PodState.GONE})
"""Nothing of the pod will use a GPU again."""
LEAVING = OVER | {PodState.ENDING}


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that asks for GPUs or has some."""

    uid: str
    state: PodState
    lease: str = ""
    """`<host>/<partition>` that it was let go to; empty behind its gate."""


Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Limits(BaseModel):
    """The longest that each phase of a lease may last, in seconds; afterwards the GPU is quarantined."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reserved: Seconds = 60
    activating: Seconds = 120
    admission: Seconds = 180
    """From the lease to the kubelet's allocation; afterwards the pod is deleted and the lease returned."""
    releasing: Seconds = 600
    resetting: Seconds = 180
    scrubbing: Seconds = 900
    verifying: Seconds = 180

    def of(self, phase: Phase) -> float | None:
        """The limit of a phase; None where it may last for ever."""
        return getattr(self, phase.lower(), None)


@dataclass(frozen=True, slots=True)
class Orders:
    """What the machine of one host is told to obey; never changes while it runs."""

    host: str
    partitions: Mapping[int, tuple[int, ...]]
    """Every partition of the board's table: modules by number."""
    offered: tuple[Partition, ...]
    """Those that may be leased."""
    keep_active: bool
    """Whether free partitions stay active; only where those on offer do not overlap."""
    policy: RecyclePolicy
    golden: Golden
    limits: Limits = field(default_factory=Limits)


def holds(lease: Lease, uid: str) -> bool:
    """Whether the GPU is that pod's."""
    return lease.holder is not None and lease.holder.pod_uid == uid
