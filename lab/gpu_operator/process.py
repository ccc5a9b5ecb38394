"""Starts, stops and finds the process of a folder."""

from pathlib import Path

from lab.gpu_operator import toolkit
from lab.gpu_operator.model import OperatorError, OperatorSpec
from lab.server_process import Report, Server, ServerFolder, ServerStatus
from lab.tools.model import ToolError
from lab.written import document

SERVER = Server("lab.gpu_operator", "the stand-in of the GPU Operator", OperatorError)


def start(folder: Path, spec: OperatorSpec, report: Report = lambda _: None) -> ServerStatus:
    """Play the operator until stopped; again: changes nothing.

    Raises:
        OperatorError: it did not come up; the message says why.
    """
    _prepare(spec.hosts, report)
    return SERVER.start(ServerFolder(folder.resolve()), document(spec), report)


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
