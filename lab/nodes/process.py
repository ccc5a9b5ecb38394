"""Starts, stops and finds the process that holds the real nodes of a folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import tools
from lab.files import read_json, write_json
from lab.nodes import leftovers, pod_network
from lab.nodes.choice import obstacles
from lab.nodes.facts import machine_facts
from lab.nodes.folder import NodesFolder
from lab.nodes.model import BRIDGE, TOOLS, NodesError, NodesSpec, NodesStatus, RunningNode
from lab.nodes.network import MOST_NODES
from lab.nodes.requests import NotAnsweredError, ask
from lab.server_process import Report, Server
from lab.written import document

SERVER = Server(
    "lab.nodes",
    "the real nodes",
    NodesError,
    # Longer than a node may take to answer and to be Ready: what hangs is told by the node itself.
    start_seconds=900.0,
    stop_seconds=120.0,
    clean=leftovers.remove,
)


def start(folder: Path, spec: NodesSpec, report: Report = lambda _: None) -> NodesStatus:
    """Run exactly these real nodes until stopped; wait until all are Ready. Done already: nothing changes.

    Where they run already, only what is different changes: nodes that stay keep their pods.

    Raises:
        NodesError: they did not come up, or this machine cannot have real nodes; the message says why.
        lab.tools.ToolError: a program cannot be had.
    """
    paths = NodesFolder(folder.resolve())
    if spec.network != BRIDGE and spec.joins:
        raise NodesError(
            "nodes of hosts that join a cluster have the network of that; leave `joins` or `network` out"
        )
    if len(spec.nodes) > MOST_NODES:
        raise NodesError(f"a lab has at most {MOST_NODES} real nodes, not {len(spec.nodes)}")
    if found := obstacles(machine_facts()):
        raise NodesError("; ".join(found))
    # Here and not in the process, so that a build is reported as it goes.
    tools.ensure(TOOLS, report)
    pod_network.of(spec.network, "", paths.path).programs(report)
    with SERVER.starting(paths):
        _serve(paths, document(spec), report)
    return status(folder)


def stop(folder: Path) -> None:
    """End the nodes and remove all that they have on the machine. Nothing to do is fine; their files stay."""
    SERVER.stop(NodesFolder(folder.resolve()))


def status(folder: Path) -> NodesStatus:
    """Whether they run, and where."""
    paths = NodesFolder(folder.resolve())
    ready = read_json(paths.ready)
    server = SERVER.find(paths)
    if server is None or ready is None:
        gone = paths.undo.exists()
        detail = "they are gone without having been stopped" if gone else "not started"
        return NodesStatus(
            running=False, pid=None, nodes={}, machines={}, subnet="", log=paths.log, detail=detail
        )
    machines = {
        name: RunningNode(name, machine["address"], machine["pid"], paths.node(name).path)
        for name, machine in sorted(ready["machines"].items())
    }
    return NodesStatus(
        running=True, pid=server.pid, nodes={name: machines[name] for name in ready["nodes"]},
        machines=machines, subnet=ready["subnet"], log=paths.log, detail="running",
    )  # fmt: skip


def command_in(node: RunningNode, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` in the namespaces of a running node."""
    spaces = ("--mount", "--net", "--pid", "--uts", "--ipc")
    return ["nsenter", "--target", str(node.pid), *spaces, "--", *command]


def _serve(paths: NodesFolder, wanted: dict[str, Any], report: Report) -> None:
    if SERVER.find(paths) is not None:
        if read_json(paths.specs) != wanted:
            report("changing the real nodes")
            write_json(paths.specs, wanted)
        try:
            why = ask(paths, {"request": "reload"}, SERVER.start_seconds).get("restart")
        except NotAnsweredError:
            why = "their process does not answer"
        if why is None:
            return
        report(f"restarting the real nodes: {why}")
    SERVER.end(paths)
    write_json(paths.specs, wanted)
    report(f"starting {len(wanted['nodes'])} real nodes")
    SERVER.launch(paths)
