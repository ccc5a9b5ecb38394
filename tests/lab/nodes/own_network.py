"""A network namespace that stands for the machine of a real node, and connections from within it."""

from __future__ import annotations

import asyncio
import ctypes
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from lab.hosts.model import HostEndpoint

_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class OwnNetwork:
    """A process in a network of its own, which has these addresses."""

    process: subprocess.Popen[bytes]
    interface: str
    """On the machine; it is gone when nothing holds the network any more."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def link(self) -> str:
        """What /proc shows of a process in this network."""
        return str(Path(f"/proc/{self.pid}/ns/net").readlink())

    def connect(self, address: str, port: int) -> socket.socket:
        """A connection from within it."""
        outcome: list[socket.socket | OSError] = []

        def run() -> None:
            try:
                with Path(f"/proc/{self.pid}/ns/net").open("rb") as space:
                    libc = ctypes.CDLL(None, use_errno=True)
                    assert libc.setns(space.fileno(), _CLONE_NEWNET) == 0
                outcome.append(socket.create_connection((address, port), 60))
            except OSError as error:
                outcome.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        (made,) = outcome
        if isinstance(made, OSError):
            raise made
        return made

    def run(self, endpoint: HostEndpoint, key: Path, command: str) -> tuple[int | None, str]:
        """Exit code and output of a command over SSH, from within it, the host key checked."""
        connection = self.connect(endpoint.address, endpoint.port)

        async def act() -> tuple[int | None, str]:
            async with asyncssh.connect(
                endpoint.address,
                endpoint.port,
                sock=connection,
                username=endpoint.user,
                client_keys=[str(key)],
                known_hosts=asyncssh.import_known_hosts(endpoint.known_host),
                config=None,
            ) as ssh:
                done = await asyncio.wait_for(ssh.run(command), 120)
                return done.exit_status, f"{done.stdout}{done.stderr}"

        return asyncio.run(act())

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


@contextmanager
def own_network(interface: str, addresses: Sequence[str]) -> Iterator[OwnNetwork]:
    """Such a network, as long as the block runs."""
    before = Path("/proc/self/ns/net").readlink()
    process = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE)
    made = OwnNetwork(process, interface)
    try:
        deadline = time.monotonic() + 60
        while str(before) == made.link:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        _ip(
            "link", "add", interface, "type", "veth", "peer", "name", "eth0", "netns", str(made.pid)
        )
        inside = ["nsenter", f"--net=/proc/{made.pid}/ns/net", "ip"]
        subprocess.run([*inside, "link", "set", "lo", "up"], check=True)
        for address in addresses:
            subprocess.run([*inside, "address", "add", f"{address}/32", "dev", "lo"], check=True)
        yield made
    finally:
        made.end()


def has_interface(name: str) -> bool:
    """Whether the machine has it."""
    return Path("/sys/class/net", name).exists()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
