"""Starts, stops and finds the process that holds the real nodes of a folder."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from lab import tools
from lab.control_plane import NodeSpec
from lab.hosts.folder import read_json, write_json
from lab.nodes import leftovers
from lab.nodes.choice import obstacles
from lab.nodes.facts import machine_facts
from lab.nodes.folder import NodesFolder
from lab.nodes.model import Devices, NodesError, NodesSpec, NodesStatus, RunningNode
from lab.nodes.network import MOST_NODES
from lab.nodes.server import TOOLS
from lab.server_process import end, living, one_at_a_time, spawn

_START_SECONDS = 180.0
_STOP_SECONDS = 60.0
_ASK_SECONDS = 60.0
_POLL_SECONDS = 0.02

Report = Callable[[str], None]


def start(
    folder: Path,
    *,
    control_plane: Path,
    nodes: Sequence[NodeSpec],
    images: Sequence[Path] = (),
    devices: Mapping[str, Devices] | None = None,
    ports: Sequence[int] = (),
    report: Report = lambda _: None,
) -> NodesStatus:
    """Run exactly these real nodes until stopped; wait until all are Ready. Done already: nothing changes.

    Args:
        folder: where everything about the nodes is kept.
        control_plane: the folder of the lab whose API server they join, which must run.
        nodes: name, labels and taints of each; their capacity is the machine's.
        images: OCI archives that every node has from the start (`lab.images`), that of `pause` among them.
        devices: character devices that nodes have, by name of the node.
        ports: of the machine's loopback; nodes and pods reach them at `lab.nodes.network.MACHINE`.
        report: receives a line for each step that takes time.

    Raises:
        NodesError: they did not come up, or this machine cannot have real nodes; the message says why.
        lab.tools.ToolError: a program cannot be had.
    """
    paths = NodesFolder(folder.resolve())
    spec = NodesSpec(
        control_plane.resolve(),
        tuple(nodes),
        tuple(path.resolve() for path in images),
        devices or {},
        tuple(ports),
    )
    if len(spec.nodes) > MOST_NODES:
        raise NodesError(f"a lab has at most {MOST_NODES} real nodes, not {len(spec.nodes)}")
    if found := obstacles(machine_facts()):
        raise NodesError("; ".join(found))
    # Here and not in the process, so that a build is reported as it goes.
    tools.ensure(TOOLS, report)
    try:
        paths.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with one_at_a_time(paths.start_lock):
            _serve(paths, spec.document(), report)
    except OSError as error:
        raise NodesError(
            f"the real nodes in {paths.path} cannot be started: {error}; free space there, or choose "
            "another folder"
        ) from error
    return status(folder)


def stop(folder: Path) -> None:
    """End the nodes and remove all that they have on the machine. Nothing to do is fine; their files stay."""
    paths = NodesFolder(folder.resolve())
    if not paths.path.exists():
        return
    with one_at_a_time(paths.start_lock):
        _end(paths)


def status(folder: Path) -> NodesStatus:
    """Whether they run, and where."""
    paths = NodesFolder(folder.resolve())
    ready = read_json(paths.ready)
    server = _server(paths)
    if server is None or ready is None:
        gone = paths.undo.exists()
        detail = "they are gone without having been stopped" if gone else "not started"
        return NodesStatus(
            running=False, pid=None, nodes={}, subnet="", log=paths.log, detail=detail
        )
    nodes = {
        name: RunningNode(name, node["address"], node["pid"], paths.node(name).path)
        for name, node in sorted(ready["nodes"].items())
    }
    return NodesStatus(
        running=True, pid=server.pid, nodes=nodes, subnet=ready["subnet"], log=paths.log,
        detail="running",
    )  # fmt: skip


def control(folder: Path, node: str, program: str, action: str) -> int | None:
    """Start, stop or restart `kubelet` or `containerd` of a running node, as its systemd would.

    Gives its process in the node, None when it is stopped.

    Raises:
        NodesError: there is no such node or program, or it does not answer.
    """
    paths = NodesFolder(folder.resolve())
    request = json.dumps({"node": node, "program": program, "action": action}).encode() + b"\n"
    # The path of a socket is short; that of a lab may be long.
    directory = os.open(paths.path, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ASK_SECONDS)
            connection.connect(f"/proc/self/fd/{directory}/{paths.control.name}")
            connection.sendall(request)
            answer: dict[str, Any] = json.loads(connection.makefile().readline())
    except (OSError, ValueError) as error:
        raise NodesError(
            f"the nodes in {paths.path} do not answer ({error}); start them"
        ) from error
    finally:
        os.close(directory)
    if "error" in answer:
        raise NodesError(str(answer["error"]))
    pid: int | None = answer["pid"]
    return pid


def command_in(node: RunningNode, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` in the namespaces of a running node."""
    spaces = ("--mount", "--net", "--pid", "--uts", "--ipc")
    return ["nsenter", "--target", str(node.pid), *spaces, "--", *command]


def _serve(paths: NodesFolder, wanted: dict[str, Any], report: Report) -> None:
    server = _server(paths)
    if server is not None and read_json(paths.specs) == wanted:
        _wait_until_ready(paths, server)
        if _all_alive(paths):
            return
        report("restarting the real nodes: one of them is gone")
    elif server is not None:
        report("restarting the real nodes: their settings changed")
    _end(paths)
    write_json(paths.specs, wanted)
    report(f"starting {len(wanted['nodes'])} real nodes")
    _launch(paths)


def _end(paths: NodesFolder) -> None:
    server = _server(paths)
    if server is not None:
        end(server, _STOP_SECONDS)
    leftovers.remove(paths)
    paths.ready.unlink(missing_ok=True)


def _all_alive(paths: NodesFolder) -> bool:
    ready: dict[str, Any] = read_json(paths.ready) or {"nodes": {}}
    return all(psutil.pid_exists(node["pid"]) for node in ready["nodes"].values())


def _server(paths: NodesFolder) -> psutil.Process | None:
    return living(read_json(paths.process))


def _launch(paths: NodesFolder) -> None:
    paths.ready.unlink(missing_ok=True)
    with paths.log.open("ab") as log:
        begin = log.tell()
        process = spawn("lab.nodes", paths.path, log)
    try:
        _wait_until_ready(paths, psutil.Process(process.pid))
    except (NodesError, psutil.NoSuchProcess) as error:
        if process.poll() is None:
            process.kill()
            process.wait()
            leftovers.remove(paths)
            raise
        lines = paths.log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
        raise NodesError(lines[-1] if lines else str(error)) from None


def _wait_until_ready(paths: NodesFolder, server: psutil.Process) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not paths.ready.exists():
        gone = not server.is_running() or server.status() == psutil.STATUS_ZOMBIE
        if gone or time.monotonic() > deadline:
            raise NodesError(
                f"the real nodes in {paths.path} "
                + ("ended" if gone else f"were not all Ready in {_START_SECONDS:.0f} s")
                + f"; see {paths.log}"
            )
        time.sleep(_POLL_SECONDS)
