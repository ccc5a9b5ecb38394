"""The process that plays the operator of a folder."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from lab.cluster import ClusterError
from lab.control_plane.layout import Layout
from lab.gpu_operator import toolkit_programs
from lab.gpu_operator.folder import OperatorFolder
from lab.gpu_operator.machines import HostMachines
from lab.gpu_operator.model import OperatorError, OperatorSpec
from lab.gpu_operator.operator import Operator
from lab.gpu_operator.real_nodes import RealNodes
from lab.hosts.folder import read_json, write_json
from lab.kubelet.folder import KubeletFolder
from lab.kubelet.kube import Kube
from lab.tools.errors import ToolError

_WATCH_SECONDS = 1.0
_log = logging.getLogger(__name__)


def serve(path: Path) -> None:
    """Play in this process until SIGTERM or SIGINT.

    Raises:
        OperatorError: another process plays the operator of this folder, or there is no control plane.
    """
    folder = OperatorFolder(path)
    lock = os.open(folder.serve_lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OperatorError(f"another process plays the GPU Operator in {path}") from None
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    _log.info("this is a stand-in of the GPU Operator")
    process = psutil.Process()
    write_json(folder.process, {"pid": process.pid, "created": process.create_time()})
    try:
        asyncio.run(_play(folder, OperatorSpec.of(read_json(folder.specs))))
    except ClusterError as error:
        raise OperatorError(f"the stand-in of the GPU Operator cannot work: {error}") from error


async def _play(folder: OperatorFolder, spec: OperatorSpec) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    watching = asyncio.create_task(_watch(folder, stop))
    async with Kube(Layout.of(spec.control_plane), "admin") as kube:
        machines = HostMachines(spec.hosts, spec.control_plane, spec.nodes)
        kubelets = KubeletFolder(spec.kubelets).reachable
        real = RealNodes(spec.hosts, machines.run, _programs())
        operator = Operator(kube, machines, folder, kubelets, spec.step_seconds, real)
        write_json(folder.ready, {"step-seconds": spec.step_seconds})
        try:
            await operator.run(stop)
        finally:
            folder.ready.unlink(missing_ok=True)
            watching.cancel()


def _programs() -> Mapping[str, Path] | None:
    """NVIDIA's own, where whoever started this has had them made."""
    try:
        return toolkit_programs.there()
    except ToolError as error:
        _log.info("on real nodes the toolkit's step is played: %s", error)
        return None


async def _watch(folder: OperatorFolder, stop: asyncio.Event) -> None:
    """End when the folder was removed: nothing could find this process any more."""
    while folder.process.exists():
        await asyncio.sleep(_WATCH_SECONDS)
    stop.set()
