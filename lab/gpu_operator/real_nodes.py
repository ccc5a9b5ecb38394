"""Nodes with a kubelet of their own: their operands are real containers, told from here what to do.

A container of an operand runs `operand.sh`, which looks into a folder of its node. What it finds there is
written here, through the root of the node's first process, which the machine sees.
"""

import asyncio
import logging
import shlex
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lab.gpu_operator import toolkit
from lab.gpu_operator.pods import Stand
from lab.hosts.folder import HostsFolder
from lab.hosts.rke2 import real_machine
from lab.nodes.registry import REFUSED
from lab.nodes.requests import control

FOLDER: Final = "/run/nvidia/stand-in"
CONTAINERD: Final = "/run/containerd/containerd.sock"
"""Where the toolkit looks for containerd, unless it is told; that of RKE2 is elsewhere."""
SCRIPT: Final = (Path(__file__).parent / "operand.sh").read_text(encoding="utf-8")
_VOLUME = "stand-in"
Object = Mapping[str, Any]
Run = Callable[[str, str], Awaitable[None]]
"""Runs a command line on the host of a node, as the operator of that host."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RealNode:
    """One of them. `pid` is its first process, `host` its host's root, `nodes` the folder of `lab.nodes`."""

    name: str
    pid: int
    host: Path
    nodes: Path

    def path(self, path: str) -> Path:
        """A file of the node. Short, whatever the lab's folder is called, as sockets need it."""
        return Path(f"/proc/{self.pid}/root") / path.lstrip("/")

    def has(self, socket: str) -> bool:
        """Whether somebody listens there, or did."""
        return self.path(socket).exists()

    @property
    def device_plugins(self) -> Path:
        """Where its kubelet listens for device plugins."""
        return self.path("/var/lib/kubelet/device-plugins")

    def tell(self, pod: Object, stand: Stand) -> None:
        """How far an operand's pod is to come. Again: changes nothing."""
        folder = self.path(f"{FOLDER}/{pod['metadata']['uid']}")
        folder.mkdir(parents=True, exist_ok=True)
        for one in pod["spec"].get("initContainers", ())[: stand.inits_done]:
            (folder / f"{one['name']}.done").touch()
        fails, ready = folder / "fails", folder / "ready"
        if stand.exit_code is None:
            fails.unlink(missing_ok=True)
        elif not fails.exists():
            fails.write_text(f"{stand.message}\n")
        if stand.ready:
            ready.touch()
        else:
            ready.unlink(missing_ok=True)

    def forget(self, but: Sequence[str]) -> None:
        """Remove what pods were told that are no more; `but` are uids of those that are."""
        folder = self.path(FOLDER)
        for one in folder.iterdir() if folder.is_dir() else ():
            if one.name not in but:
                shutil.rmtree(one, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class RealNodes:
    """The real nodes under the hosts of one lab."""

    hosts: Path
    run: Run
    programs: Mapping[str, Path] | None
    """Of NVIDIA's container toolkit; None where they cannot be had, and its step is played."""

    def of(self, name: str) -> RealNode | None:
        """The real node of this name that is switched on; None if there is none."""
        host = HostsFolder(self.hosts).host(name)
        found = real_machine.read(host)
        return None if found is None else RealNode(name, found.pid, host.root, found.nodes)

    def refuse(self, names: Iterable[str], images: Iterable[str]) -> None:
        """Let the registry of these nodes not find these images, and all others again."""
        text = "".join(f"{image}\n" for image in sorted(images))
        for folder in {node.nodes for node in map(self.of, names) if node is not None}:
            file = folder / REFUSED
            if not text:
                file.unlink(missing_ok=True)
            elif not file.exists() or file.read_text() != text:
                file.write_text(text)

    def lost_toolkit(self, node: RealNode) -> bool:
        """Whether a host is without the programs that it could have."""
        return self.programs is not None and not toolkit.is_there(node.host)

    async def install_toolkit(self, node: RealNode, *, default: bool) -> None:
        """What the toolkit's container does on a host before it tells containerd."""
        if self.programs is None:
            _log.warning("%s: the toolkit's step is played: its programs cannot be had", node.name)
            return
        toolkit.lay(node.host, self.programs)
        await self.run(node.name, f"sudo -n {shlex.join(toolkit.configure(default=default))}")
        _log.info("%s: NVIDIA's container toolkit is installed there", node.name)
        if node.has(CONTAINERD):
            # The real one signals it, and systemd starts it again.
            await asyncio.to_thread(control, node.nodes, node.name, "containerd", "restart")


def as_real(template: dict[str, Any], name: str) -> dict[str, Any]:
    """The template of an operand's pods with what a kubelet runs: a stand-in image and `operand.sh`.

    Whoever plays pods does not look at it, so that nodes of both kinds have the same DaemonSet.
    """
    spec = template["spec"]
    uid = {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    common = {
        "volumeMounts": [{"name": _VOLUME, "mountPath": FOLDER, "readOnly": True}],
        # The last words of a container are the reason why it fails.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    probe = {"exec": {"command": ["sh", "-c", f"test -e {FOLDER}/$POD_UID/ready"]}}
    return template | {
        "spec": spec
        | {
            "initContainers": [
                one | common | {"env": [uid], "command": _command("init", one["name"])}
                for one in spec["initContainers"]
            ],
            "containers": [
                one
                | common
                | {
                    "env": [*one.get("env", ()), uid],
                    "command": _command("run", name),
                    "readinessProbe": probe | {"periodSeconds": 1},
                }
                for one in spec["containers"]
            ],
            "terminationGracePeriodSeconds": 5,
            "volumes": [
                {"name": _VOLUME, "hostPath": {"path": FOLDER, "type": "DirectoryOrCreate"}}
            ],
        }
    }


def _command(kind: str, name: str) -> list[str]:
    return ["sh", "-c", SCRIPT, "operand", kind, name]
