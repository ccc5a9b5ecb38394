"""The cables of a lab: a bridge in a network of its own, to which the machine and every node are linked.

The bridge is not in the machine's network: filters of the machine, such as Docker's, would drop what nodes
say to each other. All of it goes away with the process that holds that network.
"""

import contextlib
import ipaddress
import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from lab.control_plane.commands import SERVICE_RANGE
from lab.nodes.model import NodesError
from lab.nodes.network import API_SERVICE, MACHINE, Network, NetworkPlan, networks

_BRIDGE = "bridge"
_NODE = "node"
_SECONDS = 60.0
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
    def __init__(self, plan: NetworkPlan) -> None:
        self._plan = plan
        # cat ends when this process does, because its input ends; then the network is gone.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "cat"], stdin=subprocess.PIPE, start_new_session=True
        )

    @property
    def pid(self) -> int:
        return self._holder.pid

    def open(self) -> None:
        """Make the bridge and the machine's link to it."""
        _wait_for_namespace(self.pid)
        self._inside("ip", "link", "add", _BRIDGE, "type", "bridge", "forward_delay", "0")
        self._inside("ip", "link", "set", _BRIDGE, "up")
        self._inside("ip", "link", "set", "lo", "up")
        _run(
            ["ip", "link", "add", self._plan.interface, "type", "veth",
             "peer", "name", "machine", "netns", str(self.pid)]
        )  # fmt: skip
        self._inside("ip", "link", "set", "machine", "master", _BRIDGE, "up")
        address = f"{self._plan.machine}/{self._plan.subnet.prefixlen}"
        _run(["ip", "address", "add", address, "dev", self._plan.interface])
        _run(["ip", "link", "set", self._plan.interface, "up"])

    def plug(self, number: int, pid: int, address: str) -> None:
        """Link the network of the node with this number to the bridge, under this address."""
        port = _port(number)
        # The same node has the same hardware address each time: neighbours keep theirs for a while.
        hardware = _hardware_address(address)
        self._inside(
            *("ip", "link", "add", port, "type", "veth"),
            *("peer", "name", "eth0", "address", hardware, "netns", str(pid)),
        )
        self._inside("ip", "link", "set", port, "master", _BRIDGE, "up")
        inside(pid, "ip", "link", "set", "lo", "up")
        for served in (API_SERVICE, MACHINE):
            inside(pid, "ip", "address", "add", f"{served}/32", "dev", "lo")
        prefix = self._plan.subnet.prefixlen
        inside(pid, "ip", "address", "add", f"{address}/{prefix}", "dev", "eth0")
        inside(pid, "ip", "link", "set", "eth0", "up")
        # Nothing beyond the lab can be reached, but a machine without a default route is none for RKE2.
        inside(pid, "ip", "route", "add", "unreachable", "default")
        # Never to be followed: kube-proxy gives what goes to a Service another target. But without any route
        # the node's own connections would not come so far.
        inside(pid, "ip", "route", "add", SERVICE_RANGE, "dev", "eth0", "src", address)

    def unplug(self, number: int) -> None:
        """Remove the link of a node, also where something still holds the node's network; absent is done."""
        try:
            self._inside("ip", "link", "delete", _port(number))
        except NodesError:
            # The kernel removes it too, in its own time, once the node's network is gone.
            if number in self.plugged():
                raise

    def cable(self, number: int, *, plugged: bool) -> None:
        """Cut the cable of a node, or put it in again: its addresses and routes stay."""
        self._inside("ip", "link", "set", _port(number), "up" if plugged else "down")

    def plugged(self) -> dict[int, bool]:
        """The nodes that have a cable, by number, and whether it is in."""
        ports = json.loads(self._asked("ip", "-json", "link", "show", "master", _BRIDGE) or "[]")
        return {
            int(port["ifname"].removeprefix(_NODE)): "UP" in port["flags"]
            for port in ports
            if port["ifname"].startswith(_NODE)
        }

    def answer_at(self, address: str) -> None:
        """Have this address in the bridge's network, for what is on it and is no node."""
        self._inside(
            *("ip", "address", "replace", f"{address}/{self._plan.subnet.prefixlen}"),
            *("dev", _BRIDGE),
        )

    def answer_no_more_at(self, address: str) -> None:
        """Give the address up; absent is done."""
        with contextlib.suppress(NodesError):
            self._inside(
                *("ip", "address", "delete", f"{address}/{self._plan.subnet.prefixlen}"),
                *("dev", _BRIDGE),
            )

    def close(self) -> None:
        stream: IO[bytes] | None = self._holder.stdin
        if stream is not None:
            stream.close()
        self._holder.wait(_SECONDS)

    def _inside(self, *command: str) -> None:
        inside(self.pid, *command)

    def _asked(self, *command: str) -> str:
        return inside(self.pid, *command)


def route(pid: int, ranges: Mapping[str, str]) -> None:
    """Lead a node's packets to the pods of others: address of the node, by range of its pods."""
    for pods, address in ranges.items():
        inside(pid, "ip", "route", "replace", pods, "via", address)


def inside(pid: int, *command: str) -> str:
    """Run a command in the network of a process; gives its output."""
    return _run(["nsenter", f"--net=/proc/{pid}/ns/net", *command])


def _port(number: int) -> str:
    return f"{_NODE}{number}"


def _hardware_address(address: str) -> str:
    return "02:67:" + ipaddress.IPv4Address(address).packed.hex(":")


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
