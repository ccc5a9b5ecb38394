"""Starts, stops and finds the process of a folder."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from lab.gpu_operator import toolkit
from lab.gpu_operator.model import OperatorError, OperatorSpec
from lab.server_process import Report, Server, ServerFolder, ServerStatus
from lab.tools.model import ToolError

SERVER = Server("lab.gpu_operator", "the stand-in of the GPU Operator", OperatorError)


def start(
    folder: Path,
    *,
    control_plane: Path,
    hosts: Path,
    report: Report = lambda _: None,
    kubelets: Path | None = None,
    step_seconds: float = 0.3,
    nodes: Collection[str] | None = None,
) -> ServerStatus:
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
    spec = OperatorSpec(
        control_plane.resolve(),
        hosts.resolve(),
        (kubelets or control_plane / "kubelet").resolve(),
        step_seconds,
        None if nodes is None else frozenset(nodes),
    )
    return SERVER.start(ServerFolder(folder.resolve()), spec.document(), report)


def _prepare(hosts: Path, report: Report) -> None:
    """Have NVIDIA's programs where there are real nodes: here, so that a build is reported as it goes."""
    if not any(hosts.glob("*/machine.json")):
        return
    try:
        toolkit.ensure(report)
    except ToolError as error:
        report(f"on real nodes the step of NVIDIA's container toolkit is played: {error}")


def stop(folder: Path) -> None:
    """End the process. Nothing to do is fine; its files stay."""
    SERVER.stop(ServerFolder(folder.resolve()))


def status(folder: Path) -> ServerStatus:
    return SERVER.status(ServerFolder(folder.resolve()))
