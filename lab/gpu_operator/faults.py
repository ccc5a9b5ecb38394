"""Faults of operands, by name, while the stand-in runs; read anew at every look.

inject(folder, NodeFails(node="gpu-02"))
clear(folder)
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from lab.gpu_operator.folder import OperatorFolder
from lab.gpu_operator.model import OperatorError
from lab.hosts.folder import read_json, write_json


class _Fault(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    node: str = ""
    """The node that it concerns; empty: every node."""

    def concerns(self, node: str) -> bool:
        """Whether this node is meant."""
        return self.node in ("", node)


class DriverSlow(_Fault):
    """The operator's driver takes so many seconds more."""

    kind: Literal["operator-driver-slow"] = "operator-driver-slow"
    seconds: float = Field(gt=0)


class NodeFails(_Fault):
    """The device plugin of a node fails again and again."""

    kind: Literal["operator-node-fails"] = "operator-node-fails"
    message: str = "failed to create fsnotify watcher: too many open files"


class NeverReady(_Fault):
    """The validators never pass, and the policy is never ready."""

    kind: Literal["operator-never-ready"] = "operator-never-ready"


class ImagePull(_Fault):
    """The image of an operand cannot be had."""

    kind: Literal["operator-image-pull"] = "operator-image-pull"
    operand: str = "nvidia-container-toolkit-daemonset"


Fault = Annotated[DriverSlow | NodeFails | NeverReady | ImagePull, Field(discriminator="kind")]
_FAULT: TypeAdapter[Fault] = TypeAdapter(Fault)
_FAULTS: TypeAdapter[list[Fault]] = TypeAdapter(list[Fault])


def parse(kind: str, values: dict[str, Any]) -> Fault:
    """A fault from its name and values.

    Raises:
        OperatorError: there is no such fault, or a value is wrong.
    """
    try:
        return _FAULT.validate_python({"kind": kind, **values})
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc'][1:])) or 'kind'}: {item['msg']}"
            for item in error.errors()
        )
        raise OperatorError(f"fault {kind!r}: {problems}") from None


def read(folder: Path) -> list[Fault]:
    """The faults that are injected now."""
    content = read_json(OperatorFolder(folder).faults)
    return _FAULTS.validate_python(content) if content else []


def inject(folder: Path, *faults: Fault) -> None:
    """Add faults; they hold from the next look on."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    now = [*read(folder), *faults]
    write_json(OperatorFolder(folder).faults, [fault.model_dump(mode="json") for fault in now])


def clear(folder: Path) -> None:
    """Take all faults away."""
    OperatorFolder(folder).faults.unlink(missing_ok=True)
