"""One real machine for the tests of a file, reached by the program's own SSH."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuclusters.core.errors import DeniedError, UnreachableError
from gpuclusters.host.connect import SshCredentials
from gpuclusters.host.model import HostConnection
from gpuclusters.host.ssh import SshHost
from lab.hosts.model import ADDRESS
from lab.machine import Machine
from tests.providers.conftest import shared_processes, start_provider
from tests.providers.provider_process import ProviderProcess

__all__ = ["shared_processes", "start_provider"]

_BOOT_SECONDS = 900.0


_LONGEST = ("boot", "service_vm", "packages", "accounts")
"""What the files are about that take minutes, in the order in which workers take them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    ours = {f"test_machine_{name}": number for number, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: ours.get(item.path.stem, len(ours)))
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.machine)
            item.add_marker(pytest.mark.timeout(1800))


@dataclass(frozen=True)
class RealMachine:
    """A machine and how it is reached; the same names as those of a simulated host."""

    machine: Machine

    @property
    def connection(self) -> dict[str, object]:
        """The host as an input of a provider."""
        return self.machine.connection

    @property
    def client_key(self) -> Path:
        """Private key that it lets in."""
        return self.machine.image.client_key

    @property
    def ssh(self) -> SshHost:
        """Its commands, over a connection that is kept."""
        credentials = SshCredentials("the test's key", self.client_key.read_text())
        return SshHost(HostConnection.model_validate(self.connection), credentials)

    def run(
        self, command: str, *, stdin: str = "", as_root: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run a command line as the account that logs in."""
        done = self.ssh.run(
            ["bash", "-c", command],
            tried="run a test's command",
            stdin=stdin.encode(),
            as_root=as_root,
            timeout_seconds=300,
        )
        out = done.stdout.decode(errors="replace")
        return subprocess.CompletedProcess(command, done.status, out, done.stderr)

    def sudo(self, command: str, **options: str) -> str:
        """What a command line prints as root; one that fails is the test's fault."""
        done = self.run(command, as_root=True, **options)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def boot_id(self) -> str:
        """Another one after every boot."""
        return self.run("cat /proc/sys/kernel/random/boot_id").stdout.strip()

    def wait_for_boot(self, before: str) -> None:
        """Until it answers in another boot."""
        deadline = time.monotonic() + _BOOT_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(UnreachableError, DeniedError):
                if self.greets() and self.boot_id() != before:
                    return
            time.sleep(0.5)
        raise AssertionError(self.machine.qemu.said()[-2000:])

    def greets(self) -> bool:
        """Whether its sshd answers a connection soon; QEMU's network lets old ones wait for long."""
        with contextlib.suppress(OSError), socket.socket() as asking:
            asking.settimeout(2)
            asking.connect((ADDRESS, self.machine.connection["port"]))
            return asking.recv(3) == b"SSH"
        return False

    def cut_power(self) -> None:
        """Off and on again: it boots what its disk has."""
        before = self.boot_id()
        self.machine.cut_power()
        self.wait_for_boot(before)


@pytest.fixture(scope="module")
def machine() -> Iterator[RealMachine]:
    with Machine() as made:
        real = RealMachine(made)
        real.run("true")
        real.sudo(f"date -s @{time.time():.0f}")  # it goes on from when its image was made
        yield real


@pytest.fixture
def provider(
    machine: RealMachine, start_provider: Callable[..., ProviderProcess]
) -> ProviderProcess:
    return start_provider(machine, GPU_CLUSTERS_SSH_COMMAND_TIMEOUT_SECONDS="600")
