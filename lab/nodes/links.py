"""The cables of a lab: a bridge in a network of its own, to which the machine and every node are linked.

The bridge is not in the machine's network: filters of the machine, such as Docker's, would drop what nodes
say to each other. All of it goes away with the process that holds that network.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from lab.nodes.model import NodesError
from lab.nodes.network import API_SERVICE, MACHINE, Network, NetworkPlan, networks

_BRIDGE = "bridge"
_SECONDS = 10.0
_POLL_SECONDS = 0.005


def taken() -> list[Network]:
    """Every network that this machine has or reaches by a route."""
    return networks(_json("-4", "route", "show", "table", "all"), _json("-4", "address", "show"))


def interface_exists(name: str) -> bool:
    """Whether the machine has an interface of this name."""
    return any(found["ifname"] == name for found in _json("link", "show"))


def remove_interface(name: str) -> None:
    """Remove an interface of the machine; absent is done."""
    if not interface_exists(name):
        return
    try:
        _run(["ip", "link", "delete", name])
    except NodesError:
        # The kernel removes it too, in its own time, once the network of its other end is gone.
        if interface_exists(name):
            raise


class Switch:
    """The network with the bridge."""

    def __init__(self, plan: NetworkPlan) -> None:
        self._plan = plan
        # cat ends when this process does, because its input ends; then the network is gone.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "cat"], stdin=subprocess.PIPE, start_new_session=True
        )
        self._ports = 0

    @property
    def pid(self) -> int:
        """The process that holds the network."""
        return self._holder.pid

    def open(self) -> None:
        """Make the bridge and the machine's link to it."""
        _wait_for_namespace(self.pid)
        self._inside("ip", "link", "add", _BRIDGE, "type", "bridge", "forward_delay", "0")
        self._inside("ip", "link", "set", _BRIDGE, "up")
        _run(
            ["ip", "link", "add", self._plan.interface, "type", "veth",
             "peer", "name", "machine", "netns", str(self.pid)]
        )  # fmt: skip
        self._inside("ip", "link", "set", "machine", "master", _BRIDGE, "up")
        address = f"{self._plan.machine}/{self._plan.subnet.prefixlen}"
        _run(["ip", "address", "add", address, "dev", self._plan.interface])
        _run(["ip", "link", "set", self._plan.interface, "up"])

    def plug(self, pid: int, address: str) -> None:
        """Link the network of a node to the bridge, under this address."""
        port = f"node{self._ports}"
        self._ports += 1
        self._inside(
            "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pid)
        )
        self._inside("ip", "link", "set", port, "master", _BRIDGE, "up")
        inside(pid, "ip", "link", "set", "lo", "up")
        for served in (API_SERVICE, MACHINE):
            inside(pid, "ip", "address", "add", f"{served}/32", "dev", "lo")
        prefix = self._plan.subnet.prefixlen
        inside(pid, "ip", "address", "add", f"{address}/{prefix}", "dev", "eth0")
        inside(pid, "ip", "link", "set", "eth0", "up")

    def close(self) -> None:
        """End the network."""
        stream: IO[bytes] | None = self._holder.stdin
        if stream is not None:
            stream.close()
        self._holder.wait(_SECONDS)

    def _inside(self, *command: str) -> None:
        inside(self.pid, *command)


def route(pid: int, ranges: Mapping[str, str]) -> None:
    """Lead a node's packets to the pods of others: address of the node, by range of its pods."""
    for pods, address in ranges.items():
        inside(pid, "ip", "route", "replace", pods, "via", address)


def inside(pid: int, *command: str) -> None:
    """Run a command in the network of a process."""
    _run(["nsenter", f"--net=/proc/{pid}/ns/net", *command])


def _wait_for_namespace(pid: int) -> None:
    own = Path("/proc/self/ns/net").stat().st_ino
    deadline = time.monotonic() + _SECONDS
    while Path(f"/proc/{pid}/ns/net").stat().st_ino == own:
        if time.monotonic() > deadline:
            raise NodesError("the kernel gave no network namespace; see `unshare --net true`")
        time.sleep(_POLL_SECONDS)


def _json(*arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_run(["ip", "-json", *arguments]) or "[]")
    return found


def _run(command: list[str]) -> str:
    try:
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=_SECONDS
        ).stdout
    except subprocess.CalledProcessError as error:
        words = error.stderr.strip() or f"it ended with {error.returncode}"
        raise NodesError(f"`{' '.join(command)}` failed: {words}") from error
    except subprocess.TimeoutExpired:
        raise NodesError(f"`{' '.join(command)}` did not end within {_SECONDS:.0f} s") from None
