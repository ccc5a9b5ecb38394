"""Starts, stops and finds the process of a folder."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from lab.gpu_operator import toolkit_programs
from lab.gpu_operator.folder import OperatorFolder
from lab.gpu_operator.model import OperatorError, OperatorSpec
from lab.stand_in import Report, StandIn, StandInStatus
from lab.tools.errors import ToolError

_STAND_IN = StandIn("lab.gpu_operator", "the stand-in of the GPU Operator", OperatorError)


def start(
    folder: Path,
    *,
    control_plane: Path,
    hosts: Path,
    report: Report = lambda _: None,
    kubelets: Path | None = None,
    step_seconds: float = 0.3,
    nodes: Collection[str] | None = None,
) -> StandInStatus:
    """Play the operator until stopped; again: changes nothing.

    Args:
        folder: where everything about the stand-in is kept.
        control_plane: folder of the lab whose API server it uses, which must run.
        hosts: folder of the simulated hosts; the node of a host has its name.
        report: receives a line for each step that takes time.
        kubelets: folder of the lab's kubelets; `kubelet` in that of the lab if it is None.
        step_seconds: what each step of an operand takes.
        nodes: the nodes of its cluster; None for those of all hosts.

    Raises:
        OperatorError: it did not come up; the message says why.
    """
    _prepare(hosts.resolve(), report)
    paths = OperatorFolder(folder.resolve())
    spec = OperatorSpec(
        control_plane.resolve(),
        hosts.resolve(),
        (kubelets or control_plane / "kubelet").resolve(),
        step_seconds,
        None if nodes is None else frozenset(nodes),
    )
    return _STAND_IN.start(paths, paths.specs, spec.document(), report)


def _prepare(hosts: Path, report: Report) -> None:
    """Have NVIDIA's programs where there are real nodes: here, so that a build is reported as it goes."""
    if not any(hosts.glob("*/machine.json")):
        return
    try:
        toolkit_programs.ensure(report)
    except ToolError as error:
        report(f"on real nodes the step of NVIDIA's container toolkit is played: {error}")


def stop(folder: Path) -> None:
    """End the process. Nothing to do is fine; its files stay."""
    _STAND_IN.stop(OperatorFolder(folder.resolve()))


def status(folder: Path) -> StandInStatus:
    """Whether it runs."""
    return _STAND_IN.status(OperatorFolder(folder.resolve()))
