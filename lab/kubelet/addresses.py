"""Addresses of pods: loopback for real processes, the node's own range for simulated ones."""

import ipaddress
import random
import socket
from collections.abc import Sequence

_TRIES = 100
_SAID, _LISTENED = "198", "127"
_SECOND = (18, 19)
"""198.18.0.0/15 is for benchmarks and never routed (RFC 2544)."""


def public(listened: str) -> str:
    """What the cluster is told of an address that a process listens on: endpoints must not be loopback."""
    return f"{_SAID}{listened.removeprefix(_LISTENED)}"


def reachable(pod_ip: str) -> str:
    """Where this machine reaches the process of a pod that says it has this address."""
    return f"{_LISTENED}{pod_ip.removeprefix(_SAID)}"


def is_process(pod_ip: str) -> bool:
    """Whether the pod of this address is a process of this machine, and no container of a real node."""
    return pod_ip.startswith(f"{_SAID}.")


class LoopbackAddresses:
    """Addresses in 127.0.0.0/8, one per pod, so that fixed ports of containers do not clash."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._random = random.SystemRandom()

    def take(self, ports: Sequence[int]) -> str:
        """An address that no pod has and on which all ports can be listened at."""
        for _ in range(_TRIES):
            parts = (self._random.choice(_SECOND), self._random.randint(0, 255))
            address = ".".join(map(str, (_LISTENED, *parts, self._random.randint(1, 254))))
            if address not in self._used and all(_is_free(address, port) for port in ports):
                self._used.add(address)
                return address
        raise OSError(f"no loopback address with free ports {list(ports)} was found")

    def give_back(self, address: str) -> None:
        self._used.discard(address)


class PodRange:
    """Addresses of a node's range, lowest first; the first one is the node's own."""

    def __init__(self) -> None:
        self._network = ipaddress.ip_network("10.0.0.0/24")
        self._used: set[str] = set()

    def use(self, cidr: str) -> None:
        """Take the range that the cluster gave to the node."""
        self._network = ipaddress.ip_network(cidr)

    def take(self, before: str = "") -> str:
        """A free address; the one of before a restart, if that can be had."""
        if before and before not in self._used:
            self._used.add(before)
            return before
        for address in list(self._network.hosts())[1:]:
            if str(address) not in self._used:
                self._used.add(str(address))
                return str(address)
        return ""

    def give_back(self, address: str) -> None:
        self._used.discard(address)


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
