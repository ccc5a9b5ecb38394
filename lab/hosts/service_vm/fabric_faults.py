"""What all faults have in common, and the faults of a board: its fabric manager, links and modules."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field


class BaseFault(BaseModel):
    """One fault, and its name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: str = Field(default_factory=lambda: uuid4().hex)
    """Tells two equal faults apart, for those that end after some times."""


class FabricManager(BaseFault):
    """The fabric manager is initialising, not reachable, of another version, or sees link errors."""

    kind: Literal["fabric-manager"] = "fabric-manager"
    state: Literal["restarting", "down", "version-mismatch", "nvlink-error", "not-supported"]


class PartitionBusy(BaseFault):
    """The fabric manager answers "in use" whenever this partition is to be activated or dropped."""

    kind: Literal["partition-busy"] = "partition-busy"
    partition: int = Field(ge=0)


class PartitionUnsupported(BaseFault):
    """A GPU failed at start: the fabric manager leaves out the partitions that contain it."""

    kind: Literal["partition-unsupported"] = "partition-unsupported"
    module: int = Field(ge=1, le=8)


class FabricAnswers(BaseFault):
    """The fabric manager answers this code (fmReturn), and does nothing; `times`: only so often."""

    kind: Literal["fabric-answers"] = "fabric-answers"
    code: int = Field(ge=-29, le=-1)
    operation: Literal["list", "activate", "deactivate", "set", "any"] = "any"
    partition: int | None = Field(default=None, ge=0)
    times: int | None = Field(default=None, ge=1)


class FabricRestarts(BaseFault):
    """The fabric manager restarts right after this operation, once: what it was told before is forgotten."""

    kind: Literal["fabric-restarts"] = "fabric-restarts"
    after: Literal["list", "activate", "deactivate", "set"] = "list"


class LinksDegraded(BaseFault):
    """Some NVLinks of a GPU did not train: it lists fewer than there are at most."""

    kind: Literal["links-degraded"] = "links-degraded"
    module: int = Field(ge=1, le=8)
    available: int = Field(default=0, ge=0, le=18)


class ModuleMapShuffled(BaseFault):
    """The GPUs of two modules have changed places: each sits at the other's PCI address."""

    kind: Literal["module-map-shuffled"] = "module-map-shuffled"
    modules: tuple[Annotated[int, Field(ge=1, le=8)], Annotated[int, Field(ge=1, le=8)]] = (1, 2)


class ModuleNameUnknown(BaseFault):
    """`nvidia_gpu_tools.py` knows no module name of the GPU in this module and stops there."""

    kind: Literal["module-name-unknown"] = "module-name-unknown"
    module: int = Field(ge=1, le=8)


class ToolMissing(BaseFault):
    """A command is not installed."""

    kind: Literal["tool-missing"] = "tool-missing"
    tool: str
