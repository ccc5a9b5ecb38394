"""The rootless node of one host: started, entered, started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from lab.nodes import cgroups
from tests.rootless.node import delegation
from tests.rootless.node.machine import PrivateMachine
from tests.rootless.node.model import DATA, LIBEXEC, RootlessNodeError, RootlessSpec

CONTAINER = "usernetes-node"
_MTU = "65520"
_SECONDS = 300.0
"""For what takes seconds, on a machine that has much else to do."""
_POLL_SECONDS = 0.05


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
    def log(self) -> Path:
        """What rootlesskit says."""
        return self.folder / "rootlesskit.log"

    @property
    def kept(self) -> Path:
        """What the node keeps over its restarts."""
        return self.folder / "data"

    @property
    def pid(self) -> int:
        """A process that is in the node's namespaces, as this machine sees it.

        Raises:
            RootlessNodeError: the node does not run.
        """
        state = f"/run/user/{self.account_id}/usernetes-node/child_pid"
        known = self.host.run("cat", state).stdout.strip()
        if self._process is not None and known:
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(OSError):
                    if _number(process.pid) == known:
                        return process.pid
        raise RootlessNodeError(f"the rootless node {self.spec.name} does not run")

    def start(self) -> None:
        """Start its namespaces and programs; returns when containerd answers.

        Raises:
            RootlessNodeError: they did not come up, with the last words of rootlesskit.
        """
        words = ["sh", f"{LIBEXEC}/launch.sh", self.spec.account, DATA, " ".join(self.places)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.host.command(*words, str(self.port), _MTU),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.host.environment(),
                start_new_session=True,
            )
        self._wait(self._answers, "containerd answers")

    def stop(self) -> None:
        """End all that runs in it, as if its power was cut; what it keeps stays.

        Raises:
            RootlessNodeError: something of it does not end.
        """
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
        delegation.clear(self.groups)
        self._process = None

    def run(self, *argv: str, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        """A command in the node, as its root: what `docker exec` is for a node of Usernetes."""
        words = ("docker", "exec", CONTAINER, *argv)
        return self.host.run(
            *words, account=self.spec.account, stdin=stdin, environment=self.environment
        )

    def output(self, *argv: str, stdin: str | bytes = "") -> str:
        """What a command in the node prints that must succeed.

        Raises:
            RootlessNodeError: it failed, with what it said.
        """
        words = ("docker", "exec", CONTAINER, *argv)
        return self.host.output(*words, account=self.spec.account, stdin=stdin, **self.environment)

    def load(self, archive: Path) -> None:
        # The archive lies where the account may not read.
        self.output(
            "ctr",
            "--namespace",
            "k8s.io",
            "images",
            "import",
            "--local",
            "-",
            stdin=archive.read_bytes(),
        )

    def _answers(self) -> bool:
        return self.run("ctr", "version").returncode == 0

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while not holds():
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                words = self.log.read_text(errors="replace").strip().splitlines()[-3:]
                raise RootlessNodeError(
                    f"the rootless node {self.spec.name} {'ended' if ended else 'is not there'} "
                    f"before {what}: {' '.join(words)} (log: {self.log})"
                )
            time.sleep(_POLL_SECONDS)


def _number(pid: int) -> str:
    """Which number a process has on the host, one level below this machine."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    numbers = next(line.split()[1:] for line in lines if line.startswith("NSpid:"))
    return numbers[1] if len(numbers) > 1 else ""
