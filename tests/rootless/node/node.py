"""The rootless node of one host: what it is asked for, started, entered, started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from lab.control_plane import NodeSpec
from lab.nodes import cgroups
from tests.rootless.node.machine import PrivateMachine, RootlessNodeError

PACKAGES = ("rootlesskit", "slirp4netns", "uidmap", "libslirp0", "libsubid4")
"""Debian's packages with the programs that an account makes its namespaces with."""
NODE_PACKAGES = ("iptables", "libxtables12", "libmnl0", "libnftnl11")
"""Debian's packages with the program that leads packets of the node's pods."""

LIBEXEC = "/usr/local/libexec/usernetes-node"
"""On the host: programs that only the node has on its PATH."""

DATA = "/srv/usernetes-node"
"""On the host: what the node keeps over its restarts, as volumes of its container would."""

TOOLS = (
    "containerd", "containerd-shim-runc-v2", "ctr", "runc", "kubelet", "cni-bridge", "cni-host-local",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RootlessSpec:
    """One rootless node on a host of its own.

    `control_plane` is the folder of the lab whose API server it joins. Of `node`, name, labels and taints
    count: capacity is what the machine has. `images` are OCI archives that the node has from the start.
    `layers` are folders whose files lie over those of the host, such as a driver; `devices` are character
    devices of the host's /dev by name: major and minor number. `account` of the host owns everything.
    """

    control_plane: Path
    node: NodeSpec
    images: tuple[Path, ...] = ()
    layers: tuple[Path, ...] = ()
    devices: tuple[tuple[str, int, int], ...] = ()
    account: str = "usernetes"

    @property
    def name(self) -> str:
        return self.node.name


CONTAINER = "usernetes-node"
_MTU = "65520"
_SECONDS = 300.0
"""For what takes seconds, on a machine that has much else to do."""
_POLL_SECONDS = 0.05
_GIVEN = ("cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks")
"""Files of a group by which processes and controllers are moved within it; limits stay root's."""


def delegate(made: Sequence[Path], owner: int) -> None:
    """Let an account make groups below and move processes; limits of the group itself stay root's."""
    for group in made:
        os.chown(group, owner, owner)
        for name in _GIVEN:
            if (group / name).exists():
                os.chown(group / name, owner, owner)


def clear(made: Sequence[Path]) -> None:
    """Remove the groups below, whose processes are gone: with a container goes its group.

    A kubelet that finds containers in groups which are none any more takes seconds for each.
    """
    for group in made:
        for folder, _, _ in os.walk(group, topdown=False):
            if Path(folder) != group:
                Path(folder).rmdir()


def places(made: Sequence[Path]) -> dict[Path, str]:
    """Where each group is to be seen by the account: in place of its hierarchy's top."""
    if cgroups.is_unified():
        return dict.fromkeys(made, "/sys/fs/cgroup")
    return {group: f"/sys/fs/cgroup/{group.parent.name}" for group in made}


@dataclass
class RootlessNode:
    """One node. `host` is the machine that it runs on, `account_id` the number of its account."""

    spec: RootlessSpec
    host: PrivateMachine
    account_id: int
    port: int
    """Of the kubelet, in the node and on the machine's loopback."""
    places: Sequence[str]
    """The account's cgroups, as the host sees them."""
    groups: Sequence[Path]
    """The same, as this machine sees them."""
    folder: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """What the account's commands are given, as `node/environment.sh` states it."""
        return {"XDG_RUNTIME_DIR": f"/run/user/{self.account_id}"}

    @property
    def kept(self) -> Path:
        """What the node keeps over its restarts."""
        return self.folder / "data"

    @property
    def pid(self) -> int:
        """A process that is in the node's namespaces, as this machine sees it."""
        state = f"/run/user/{self.account_id}/usernetes-node/child_pid"
        known = self.host.run("cat", state).stdout.strip()
        if self._process is not None and known:
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(OSError):
                    if _number(process.pid) == known:
                        return process.pid
        raise RootlessNodeError(f"the rootless node {self.spec.name} does not run")

    def start(self) -> None:
        """Start its namespaces and programs; returns when containerd answers."""
        words = ["sh", f"{LIBEXEC}/launch.sh", self.spec.account, DATA, " ".join(self.places)]
        said = self.folder / "rootlesskit.log"
        with said.open("ab") as log:
            process = self._process = subprocess.Popen(
                self.host.command(*words, str(self.port), _MTU),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.host.environment(),
                start_new_session=True,
            )
        deadline = time.monotonic() + _SECONDS
        while self.run("ctr", "version").returncode:
            ended = process.poll() is not None
            if ended or time.monotonic() > deadline:
                last = " ".join(said.read_text(errors="replace").strip().splitlines()[-3:])
                state = "ended" if ended else "is not there"
                raise RootlessNodeError(
                    f"the rootless node {self.spec.name} {state} before containerd answers: {last}"
                )
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End all that runs in it, as if its power was cut; what it keeps stays."""
        if self._process is None:
            return
        # Everything ends with the first process of its namespace; what is around ends with that.
        with contextlib.suppress(RootlessNodeError, ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + _SECONDS
        while self._process.poll() is None or cgroups.processes(self.groups[0].name):
            if time.monotonic() > deadline:
                raise RootlessNodeError(f"the rootless node {self.spec.name} does not end")
            time.sleep(_POLL_SECONDS)
        clear(self.groups)
        self._process = None

    def run(self, *argv: str, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        """A command in the node, as its root: what `docker exec` is for a node of Usernetes."""
        words = ("docker", "exec", CONTAINER, *argv)
        return self.host.run(
            *words, account=self.spec.account, stdin=stdin, environment=self.environment
        )

    def output(self, *argv: str, stdin: str | bytes = "") -> str:
        """What a command in the node prints that must succeed."""
        words = ("docker", "exec", CONTAINER, *argv)
        return self.host.output(*words, account=self.spec.account, stdin=stdin, **self.environment)

    def load(self, archive: Path) -> None:
        # The archive lies where the account may not read.
        load = ("ctr", "--namespace", "k8s.io", "images", "import", "--local", "-")
        self.output(*load, stdin=archive.read_bytes())


def _number(pid: int) -> str:
    """Which number a process has on the host, one level below this machine."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    numbers = next(line.split()[1:] for line in lines if line.startswith("NSpid:"))
    return numbers[1] if len(numbers) > 1 else ""
