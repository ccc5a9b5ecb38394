"""The process that tells the kubelets of a lab what is inside its rootless nodes."""

import logging
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lab import hosts
from lab.files import read_json, write_json
from lab.hosts import HostsError, NodeState
from lab.pods import rootless
from lab.pods.rootless import ALL, InNode
from lab.server_process import ServerFolder
from lab.usernetes import faults
from lab.usernetes.faults import (
    Fault,
    GpuLost,
    NamesByIndex,
    NetworkClosed,
    NoSpecification,
    RankDies,
    RuntimeNotDefault,
    StaleUuids,
)
from lab.usernetes.model import PluginSpec
from lab.usernetes.process import SERVER

_LOOK_SECONDS = 0.2
_log = logging.getLogger(__name__)


def serve(path: Path) -> None:
    """Tell, until SIGTERM or SIGINT.

    Raises:
        UsernetesError: another process does so for this folder.
    """
    folder = ServerFolder(path)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with SERVER.serving(folder):
        _log.info("this is a stand-in: there are no GPUs in any of these nodes")
        spec = PluginSpec.of(read_json(folder.specs))
        try:
            # Without its folder nothing could find this process any more.
            while not stop.is_set() and folder.process.exists():
                look(spec, path)
                if not folder.ready.exists():
                    write_json(folder.ready, {})
                stop.wait(_LOOK_SECONDS)
        finally:
            folder.ready.unlink(missing_ok=True)


def look(spec: PluginSpec, folder: Path) -> None:
    injected = faults.read(folder)
    nodes = {
        node.name: inside(node, injected)
        for node in _nodes(spec.hosts)
        if node.name and node.joined
    }
    if spec.kubelets.is_dir() and tell(spec.kubelets, nodes):
        _log.info("%s", {name: (one.default_runtime, one.names) for name, one in nodes.items()})


def tell(kubelets: Path, nodes: Mapping[str, InNode]) -> bool:
    """Write it down for the kubelets, that there are none too; whether that was news."""
    if (kubelets / rootless.FILE).exists() and rootless.read(kubelets) == dict(nodes):
        return False
    write_json(kubelets / rootless.FILE, rootless.document(nodes))
    return True


def _nodes(folder: Path) -> Sequence[NodeState]:
    found: list[NodeState] = []
    try:
        names: Mapping[str, object] = hosts.status(folder).hosts
    except HostsError as error:
        _log.warning("%s", error)
        return found
    for name in names:
        try:
            found.append(hosts.usernetes_node(folder, name))
        except HostsError as error:
            _log.warning("%s: %s", name, error)
    return found


def inside(node: NodeState, injected: Sequence[Fault]) -> InNode:
    """What is inside one node, with what faults make of it."""
    if not node.running:
        return InNode()
    names = (ALL, *node.gpus) if node.gpus else ()
    found = InNode(node.gpus, names, node.default_runtime, node.cdi_mode)
    for fault in injected:
        if fault.concerns(node.name):
            found = _spoilt(found, fault)
    return found


def _spoilt(found: InNode, fault: Fault) -> InNode:
    match fault:
        case RuntimeNotDefault():
            return replace(found, default_runtime="runc")
        case NoSpecification():
            return replace(found, names=())
        case NamesByIndex():
            return replace(found, names=(ALL, *map(str, range(len(found.gpus)))))
        case StaleUuids():
            foreign = (f"GPU-00000000-0000-4000-8000-{n:012x}" for n in range(len(found.gpus)))
            return replace(found, names=(ALL, *foreign))
        case GpuLost():
            return replace(found, gpus=found.gpus[1:])
        case NetworkClosed():
            return replace(found, cut_off=True)
        case RankDies():
            return replace(found, kills_training=True)
