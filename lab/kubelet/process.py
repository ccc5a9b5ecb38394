"""Starts, stops and finds the process of a folder, and ends what a killed one left behind."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import psutil

from lab.control_plane import NodeSpec
from lab.control_plane.ports import LOOPBACK
from lab.hosts.folder import read_json, write_json
from lab.kubelet.folder import KubeletFolder
from lab.kubelet.model import KubeletError, KubeletSpec, KubeletStatus
from lab.pods.names import FOLDER_VARIABLE
from lab.server_process import end, living, one_at_a_time, runs, spawn

_START_SECONDS = 300.0
_STOP_SECONDS = 60.0
_ANSWER_SECONDS = 60.0
_POLL_SECONDS = 0.02


Report = Callable[[str], None]


def start(
    folder: Path,
    *,
    control_plane: Path,
    nodes: Sequence[NodeSpec],
    image: str,
    report: Report = lambda _: None,
    boot_seconds: float = 0.3,
    hosts: Path | None = None,
    joins: Collection[str] = (),
    beside: Collection[str] = (),
    real: Path | None = None,
) -> KubeletStatus:
    """Play the kubelets of exactly these nodes until stopped; wait until all are Ready.

    Does nothing when that is done already. What a device plugin says of a node (every resource with a
    `/` in its name) is left out of its capacity until the plugin says it.

    Args:
        folder: where everything about the kubelets is kept.
        control_plane: the folder of the lab whose API server they serve, which must run.
        nodes: the nodes; KWOK must not have them too.
        image: pods of this image run as real processes.
        report: receives a line for each step that takes time.
        boot_seconds: what each of the two steps of a simulated pod with devices takes.
        hosts: folder of the simulated hosts of the same names; a pod with GPUs is a virtual machine there.
        joins: nodes that are played only while their host has joined a cluster; none of them is waited for.
        beside: names of nodes that have a real kubelet, whether `nodes` has them or not. They are not played,
            only what stands outside of their containers is: Kata's installation, virtual machines, and what
            Cilium says of them. None of them has to be there yet.
        real: folder of `lab.nodes`, which has the nodes of `beside`.

    Raises:
        KubeletError: it did not come up, or `beside` names nodes and `real` does not say where they are.
    """
    paths = KubeletFolder(folder.resolve())
    if beside and real is None:
        raise KubeletError(
            f"the folder of the real nodes {', '.join(sorted(beside))} is not known; give it as `real`"
        )
    spec = KubeletSpec(
        control_plane.resolve(),
        tuple(nodes),
        image,
        boot_seconds,
        hosts.resolve() if hosts else None,
        frozenset(joins),
        frozenset(beside),
        real.resolve() if real else None,
    )
    try:
        paths.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with one_at_a_time(paths.start_lock):
            _serve(paths, spec.document(), report)
    except OSError as error:
        raise KubeletError(
            f"the kubelets in {paths.path} cannot be started: {error}; free space there, or choose "
            "another folder"
        ) from error
    return status(folder)


def stop(folder: Path) -> None:
    """End the process and all that it runs. Nothing to do is fine; its files stay."""
    paths = KubeletFolder(folder.resolve())
    if not paths.path.exists():
        return
    with one_at_a_time(paths.start_lock):
        server = _server(paths)
        if server is not None:
            end(server, _STOP_SECONDS)
        _end_leftovers(paths)
        paths.ready.unlink(missing_ok=True)
        if paths.has_link:
            paths.link.unlink()


def status(folder: Path) -> KubeletStatus:
    """Whether it runs, and what it plays."""
    paths = KubeletFolder(folder.resolve())
    ready = read_json(paths.ready)
    server = _server(paths)
    if server is not None and ready is not None:
        nodes = {name: Path(path) for name, path in sorted(ready["nodes"].items())}
        memory = server.memory_info().rss
        return KubeletStatus(
            running=True, pid=server.pid, nodes=nodes, port=ready["port"], rss_bytes=memory,
            log=paths.log, detail="running",
        )  # fmt: skip
    gone = ready is not None
    return KubeletStatus(
        running=False, pid=None, nodes={}, port=0, rss_bytes=0, log=paths.log,
        detail="it is gone without having been stopped" if gone else "not started",
    )  # fmt: skip


def _serve(paths: KubeletFolder, wanted: dict[str, Any], report: Report) -> None:
    server = _server(paths)
    if server is not None and read_json(paths.specs) == wanted:
        _wait_until_ready(paths, server)
        if _answers(paths):
            return
        report("restarting the kubelets: they do not answer")
    elif server is not None:
        report("restarting the kubelets: their settings changed")
    if server is not None:
        end(server, _STOP_SECONDS)
    _end_leftovers(paths)
    paths.within_reach([node["name"] for node in wanted["nodes"]])
    write_json(paths.specs, wanted)
    report(f"starting the kubelets of {len(wanted['nodes'])} nodes")
    _launch(paths)


def _answers(paths: KubeletFolder) -> bool:
    """Whether somebody listens: a process that is being killed still counts as running for a while."""
    ready: dict[str, Any] | None = read_json(paths.ready)
    if ready is None:
        return False
    try:
        socket.create_connection((LOOPBACK, ready["port"]), timeout=_ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def _server(paths: KubeletFolder) -> psutil.Process | None:
    """The living process."""
    return living(read_json(paths.process))


def _launch(paths: KubeletFolder) -> None:
    paths.ready.unlink(missing_ok=True)
    with paths.log.open("ab") as log:
        begin = log.tell()
        # gRPC's handlers crash in a process that is forked for a pod and has not yet become its program.
        process = spawn("lab.kubelet", paths.path, log, GRPC_ENABLE_FORK_SUPPORT="0")
    try:
        _wait_until_ready(paths, psutil.Process(process.pid))
    except (KubeletError, psutil.NoSuchProcess) as error:
        if process.poll() is None:
            process.kill()
            process.wait()
            _end_leftovers(paths)
            raise
        lines = paths.log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
        raise KubeletError(lines[-1] if lines else str(error)) from None


def _wait_until_ready(paths: KubeletFolder, server: psutil.Process) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not paths.ready.exists():
        gone = not runs(server)
        if gone or time.monotonic() > deadline:
            raise KubeletError(
                f"the kubelets in {paths.path} "
                + ("ended" if gone else f"were not all Ready in {_START_SECONDS:.0f} s")
                + f"; see {paths.log}"
            )
        time.sleep(_POLL_SECONDS)


def _end_leftovers(paths: KubeletFolder) -> None:
    """Kill processes of pods that outlived a killed stand-in."""
    left = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(FOLDER_VARIABLE) == str(paths.path):
                process.kill()
                left.append(process)
        except psutil.Error:
            # Gone meanwhile, or another user's.
            continue
    psutil.wait_procs(left, _STOP_SECONDS)
