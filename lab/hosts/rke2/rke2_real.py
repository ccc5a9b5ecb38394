"""RKE2 on a host that is one machine with a real node of the lab: its programs, its containers, its kubectl.

What RKE2 itself would run, containerd and the kubelet, the node runs, from the files that RKE2 generates at
each start (`lab.nodes.rke2`). All of it blocks: callers move it into a thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from lab import tools
from lab.hosts.machine import Machine
from lab.hosts.model import HostsError
from lab.hosts.rke2 import real_machine
from lab.hosts.rke2.real_machine import RealMachine
from lab.nodes import rke2
from lab.nodes.folder import NodesFolder

_PROGRAMS = ("containerd", "kubelet")
_SHIM = "containerd-shim"


@dataclass(frozen=True, slots=True)
class Rke2Node:
    """The real node under a host, as RKE2 deals with it."""

    machine: Machine
    node: RealMachine

    @classmethod
    def of(cls, machine: Machine) -> Rke2Node | None:
        """Of this host; None where it is simulated throughout."""
        node = real_machine.read(machine.folder)
        return None if node is None else cls(machine, node)

    def write(self, name: str) -> None:
        """What RKE2 generates at each start of the node that is called so.

        Raises:
            ValueError: a file of the host asks for something that the lab cannot follow.
        """
        if name != self.node.name:
            raise rke2.Rke2Error(
                f"node-name {name}: a real node of the lab has the name of its host, {self.node.name}"
            )
        folder = NodesFolder(self.node.nodes).node(self.node.name)
        rke2.prepare(folder, self.machine.folder.root)

    def restart_programs(self) -> None:
        """Have containerd and kubelet of a node read what was written; containers live on meanwhile.

        Also those that `kill_all` stopped: whoever follows the hosts may not have noticed that in between. A
        host that has joined no cluster is left to it.
        """
        for program in _PROGRAMS:
            with contextlib.suppress(HostsError):
                self._control(program, "restart")

    def kill_all(self) -> None:
        """End every container of the node, as `rke2-killall.sh` does after the service was stopped."""
        for program in reversed(_PROGRAMS):
            with contextlib.suppress(HostsError):
                self._control(program, "stop")
        for shim in _shims(self.node.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in (*shim.children(recursive=True), shim):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)

    def _control(self, program: str, action: str) -> int | None:
        return real_machine.control(self.node.nodes, self.node.name, program, action)


def _shims(pid: int) -> list[psutil.Process]:
    """The parents of containers in the process namespace of a node."""
    space = _space(pid)
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.name().startswith(_SHIM) and _space(process.pid) == space:
                found.append(process)
    return found


def _space(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())


def kubectl(kubeconfig: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What the real kubectl says, asked as the cluster's administrator; it waits as long as it is told to."""
    program = tools.resolve("kubectl", lambda _: None)
    return subprocess.run(
        # Last: on the host the same cluster is known by a file of the host.
        [str(program), *words, f"--kubeconfig={kubeconfig}"],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
