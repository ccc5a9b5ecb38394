"""The process that plays the operator of a folder."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from lab.cluster import ClusterError
from lab.control_plane.layout import Layout
from lab.files import read_json, write_json
from lab.gpu_operator import toolkit
from lab.gpu_operator.machines import HostMachines
from lab.gpu_operator.model import OperatorError, OperatorSpec
from lab.gpu_operator.operator import Operator
from lab.gpu_operator.process import SERVER
from lab.gpu_operator.real_nodes import RealNodes
from lab.kubelet.folder import KubeletFolder
from lab.kubelet.kube import Kube
from lab.server_process import ServerFolder
from lab.tools.model import ToolError
from lab.written import read

_log = logging.getLogger(__name__)


def serve(path: Path) -> None:
    """Play in this process until SIGTERM or SIGINT.

    Raises:
        OperatorError: another process plays the operator of this folder, or there is no control plane.
    """
    folder = ServerFolder(path)
    try:
        SERVER.run(
            folder, lambda stop: _play(folder, read(OperatorSpec, read_json(folder.specs)), stop)
        )
    except ClusterError as error:
        raise OperatorError(f"the stand-in of the GPU Operator cannot work: {error}") from error


async def _play(folder: ServerFolder, spec: OperatorSpec, stop: asyncio.Event) -> None:
    _log.info("this is a stand-in of the GPU Operator")
    async with Kube(Layout.of(spec.control_plane), "admin") as kube:
        machines = HostMachines(spec.hosts, spec.control_plane, spec.nodes)
        kubelets = KubeletFolder(spec.kubelets or spec.control_plane / "kubelet").reachable
        real = RealNodes(spec.hosts, machines.run, _programs())
        operator = Operator(kube, machines, folder.path, kubelets, spec.step_seconds, real)
        write_json(folder.ready, {"step-seconds": spec.step_seconds})
        try:
            await operator.run(stop)
        finally:
            folder.ready.unlink(missing_ok=True)


def _programs() -> Mapping[str, Path] | None:
    """NVIDIA's own, where whoever started this has had them made."""
    try:
        return toolkit.there()
    except ToolError as error:
        _log.info("on real nodes the toolkit's step is played: %s", error)
        return None
