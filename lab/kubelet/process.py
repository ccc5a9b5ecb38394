"""Starts, stops and finds the process of a folder, and ends what a killed one left behind."""

import socket
from pathlib import Path
from typing import Any

import psutil

from lab.control_plane.ports import LOOPBACK
from lab.files import read_json, write_json
from lab.kubelet.folder import KubeletFolder
from lab.kubelet.model import KubeletError, KubeletSpec, KubeletStatus
from lab.pods.names import FOLDER_VARIABLE
from lab.server_process import Report, Server
from lab.written import document

_KILLED_SECONDS = 60.0
_ANSWER_SECONDS = 60.0


def start(folder: Path, spec: KubeletSpec, report: Report = lambda _: None) -> KubeletStatus:
    """Play the kubelets of exactly these nodes until stopped; wait until all are Ready.

    Does nothing when that is done already. What a device plugin says of a node (every resource with a
    `/` in its name) is left out of its capacity until the plugin says it.

    Raises:
        KubeletError: it did not come up, or `beside` names nodes and `real` does not say where they are.
    """
    paths = KubeletFolder(folder.resolve())
    if spec.beside and spec.real is None:
        raise KubeletError(
            f"the folder of the real nodes {', '.join(spec.beside)} is not known; give it as `real`"
        )
    with SERVER.starting(paths):
        _serve(paths, document(spec), report)
    return status(folder)


def stop(folder: Path) -> None:
    """End the process and all that it runs. Nothing to do is fine; its files stay."""
    paths = KubeletFolder(folder.resolve())
    SERVER.stop(paths)
    if paths.has_link:
        paths.link.unlink()


def status(folder: Path) -> KubeletStatus:
    paths = KubeletFolder(folder.resolve())
    found, ready = SERVER.status(paths), read_json(paths.ready)
    if not found.running or ready is None:
        return KubeletStatus(
            running=False, pid=None, nodes={}, port=0, log=paths.log,
            detail=found.detail,
        )  # fmt: skip
    nodes = {name: Path(path) for name, path in sorted(ready["nodes"].items())}
    return KubeletStatus(
        running=True, pid=found.pid, nodes=nodes, port=ready["port"],
        log=paths.log, detail=found.detail,
    )  # fmt: skip


def _serve(paths: KubeletFolder, wanted: dict[str, Any], report: Report) -> None:
    server = SERVER.find(paths)
    if server is not None and read_json(paths.specs) == wanted:
        SERVER.wait_until_ready(paths, server)
        if _answers(paths):
            return
        report("restarting the kubelets: they do not answer")
    elif server is not None:
        report("restarting the kubelets: their settings changed")
    SERVER.end(paths)
    paths.within_reach([node["name"] for node in wanted["nodes"]])
    write_json(paths.specs, wanted)
    report(f"starting the kubelets of {len(wanted['nodes'])} nodes")
    SERVER.launch(paths)


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
    psutil.wait_procs(left, _KILLED_SECONDS)


SERVER = Server(
    "lab.kubelet",
    "the kubelets",
    KubeletError,
    start_seconds=300.0,
    # gRPC's handlers crash in a process that is forked for a pod and has not yet become its program.
    variables={"GRPC_ENABLE_FORK_SUPPORT": "0"},
    clean=_end_leftovers,
)
