"""`python -m lab.nodes`: the real nodes of a folder by themselves."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from lab import images
from lab.control_plane import NodeSpec
from lab.nodes import (
    BRIDGE,
    CILIUM,
    OWN_CAPACITY,
    command_in,
    control,
    entrance,
    forwarded,
    start,
    status,
    stop,
)
from lab.nodes.model import NodesError, RunningNode
from lab.tools import ToolError
from lab.tools.model import to_stderr

_USAGE = """\
usage: python -m lab.nodes start [--cilium] FOLDER CONTROL_PLANE NODE...
                           stop FOLDER
                           status FOLDER
                           start-program|stop-program|restart-program FOLDER NODE PROGRAM
                           forward FOLDER NODE ADDRESS PORT
                           entrance FOLDER NAMESPACE SERVICE PORT
                           enter FOLDER NODE COMMAND...
(PROGRAM: kubelet, containerd, kube-proxy, coredns, machine, cable)"""


def main(arguments: list[str]) -> int:
    """Run one command; the exit code."""
    match arguments:
        case ["serve", folder]:
            from lab.nodes.server import serve

            serve(Path(folder))
        case ["start", "--cilium", folder, plane, *names] if names:
            return _start(Path(folder), Path(plane), names, CILIUM)
        case ["start", folder, plane, *names] if names:
            return _start(Path(folder), Path(plane), names, BRIDGE)
        case ["stop", folder]:
            stop(Path(folder))
        case ["status", folder]:
            return _show(Path(folder))
        case [
            ("start-program" | "stop-program" | "restart-program") as word,
            folder,
            node,
            program,
        ]:
            control(Path(folder), node, program, word.removesuffix("-program"))
        case ["forward", folder, name, address, port] if port.isdigit():
            with forwarded(_running(Path(folder), name).folder, address, int(port)) as here:
                print(f"127.0.0.1:{here} leads to {address}:{port}; end with Ctrl-C", flush=True)
                with contextlib.suppress(KeyboardInterrupt):
                    signal.pause()
        case ["entrance", folder, namespace, service, port] if port.isdigit():
            here = entrance(Path(folder), namespace, service, int(port))
            print(f"127.0.0.1:{here} leads to {namespace}/{service}:{port} while the nodes run")
        case ["enter", folder, name, *command] if command:
            _enter(Path(folder), name, command)
        case _:
            print(_USAGE, file=sys.stderr)
            return 2
    return 0


def _start(folder: Path, plane: Path, names: list[str], network: str) -> int:
    nodes = [NodeSpec(name, capacity=OWN_CAPACITY, allocatable=OWN_CAPACITY) for name in names]
    basic = images.basic(to_stderr)
    start(folder, control_plane=plane, nodes=nodes, images=basic, network=network, report=to_stderr)
    return _show(folder)


def _show(folder: Path) -> int:
    found = status(folder)
    print(found.detail + (f" (process {found.pid}, {found.subnet})" if found.pid else ""))
    for node in found.machines.values():
        print(f"{node.name}  {node.address}  process {node.pid}  {node.folder}")
    return 0 if found.running else 3


def _running(folder: Path, name: str) -> RunningNode:
    node = status(folder).machines.get(name)
    if node is None:
        raise NodesError(f"no node {name!r} runs in {folder}")
    return node


def _enter(folder: Path, name: str, command: list[str]) -> None:
    line = command_in(_running(folder, name), command)
    os.execvp(line[0], line)  # noqa: S606 (the user's own command)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (NodesError, ToolError) as error:
        print(error, file=sys.stderr)
        sys.exit(1)
