"""Faults inside rootless nodes, by name, while the stand-in runs; read anew at every look.

inject(folder, RuntimeNotDefault(node="gpu-02"))
clear(folder)
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from lab.stand_in import FaultBook, NodeFault
from lab.usernetes.model import UsernetesError


class RuntimeNotDefault(NodeFault):
    """containerd's default runtime is runc: containers see no GPU, and the plugin no NVML."""

    kind: Literal["usernetes-runtime-not-default"] = "usernetes-runtime-not-default"


class NoSpecification(NodeFault):
    """There is no CDI specification inside the node: nothing with GPUs starts."""

    kind: Literal["usernetes-no-specification"] = "usernetes-no-specification"


class NamesByIndex(NodeFault):
    """The specification names GPUs by index only: the plugin runs, and no pod with a GPU starts."""

    kind: Literal["usernetes-names-by-index"] = "usernetes-names-by-index"


class StaleUuids(NodeFault):
    """The specification is that of another machine, whose image this one was made from."""

    kind: Literal["usernetes-stale-uuids"] = "usernetes-stale-uuids"


class GpuLost(NodeFault):
    """The node sees one GPU less than the host has."""

    kind: Literal["usernetes-gpu-lost"] = "usernetes-gpu-lost"


class NetworkClosed(NodeFault):
    """Nothing gets from other nodes to the pods of this one, as with 8472/udp closed."""

    kind: Literal["usernetes-network-closed"] = "usernetes-network-closed"


class RankDies(NodeFault):
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
