"""Faults of operands, by name, while the stand-in runs; read anew at every look.

inject(folder, NodeFails(node="gpu-02"))
clear(folder)
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from lab.gpu_operator.model import OperatorError
from lab.stand_in import FaultBook, NodeFault


class DriverSlow(NodeFault):
    """The operator's driver takes so many seconds more."""

    kind: Literal["operator-driver-slow"] = "operator-driver-slow"
    seconds: float = Field(gt=0)


class NodeFails(NodeFault):
    """The device plugin of a node fails again and again."""

    kind: Literal["operator-node-fails"] = "operator-node-fails"
    message: str = "failed to create fsnotify watcher: too many open files"


class NeverReady(NodeFault):
    """The validators never pass, and the policy is never ready."""

    kind: Literal["operator-never-ready"] = "operator-never-ready"


class ImagePull(NodeFault):
    """The image of an operand cannot be had."""

    kind: Literal["operator-image-pull"] = "operator-image-pull"
    operand: str = "nvidia-container-toolkit-daemonset"


Fault = Annotated[DriverSlow | NodeFails | NeverReady | ImagePull, Field(discriminator="kind")]
_FAULT: TypeAdapter[Fault] = TypeAdapter(Fault)


BOOK = FaultBook(_FAULT, OperatorError)
parse, read, inject, clear = BOOK.parse, BOOK.read, BOOK.inject, BOOK.clear
