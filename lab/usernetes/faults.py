"""Faults inside rootless nodes, by name, while the stand-in runs; read anew at every look.

inject(folder, RuntimeNotDefault(node="gpu-02"))
clear(folder)
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from lab.stand_in_faults import FaultBook
from lab.usernetes.model import UsernetesError


class _Fault(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    node: str = ""
    """The node that it concerns; empty: every node."""

    def concerns(self, node: str) -> bool:
        """Whether this node is meant."""
        return self.node in ("", node)


class RuntimeNotDefault(_Fault):
    """containerd's default runtime is runc: containers see no GPU, and the plugin no NVML (row 6)."""

    kind: Literal["usernetes-runtime-not-default"] = "usernetes-runtime-not-default"


class NoSpecification(_Fault):
    """There is no CDI specification inside the node: nothing with GPUs starts (rows 3 and 6)."""

    kind: Literal["usernetes-no-specification"] = "usernetes-no-specification"


class NamesByIndex(_Fault):
    """The specification names GPUs by index only: the plugin runs, and no pod with a GPU starts (row 7)."""

    kind: Literal["usernetes-names-by-index"] = "usernetes-names-by-index"


class StaleUuids(_Fault):
    """The specification is that of another machine, whose image this one was made from (row 4)."""

    kind: Literal["usernetes-stale-uuids"] = "usernetes-stale-uuids"


class GpuLost(_Fault):
    """The node sees one GPU less than the host has."""

    kind: Literal["usernetes-gpu-lost"] = "usernetes-gpu-lost"


class NetworkClosed(_Fault):
    """Nothing gets from other nodes to the pods of this one, as with 8472/udp closed (row 12)."""

    kind: Literal["usernetes-network-closed"] = "usernetes-network-closed"


class RankDies(_Fault):
    """A pod of a training on this node is killed, as by its memory limit."""

    kind: Literal["usernetes-rank-dies"] = "usernetes-rank-dies"


Fault = Annotated[
    RuntimeNotDefault
    | NoSpecification
    | NamesByIndex
    | StaleUuids
    | GpuLost
    | NetworkClosed
    | RankDies,
    Field(discriminator="kind"),
]
_FAULT: TypeAdapter[Fault] = TypeAdapter(Fault)


BOOK = FaultBook(_FAULT, UsernetesError)
parse, read, inject, clear = BOOK.parse, BOOK.read, BOOK.inject, BOOK.clear
