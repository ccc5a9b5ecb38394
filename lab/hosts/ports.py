"""The loopback ports of simulated hosts: chosen once, then kept."""

from __future__ import annotations

import random
import socket

from lab.hosts.model import ADDRESS, HostsError

_PORTS = range(20000, 32000)
"""Below the range from which systems choose ports of outgoing connections, so that a port that is
free now is still free after a restart."""
_PORT_ATTEMPTS = 200


def listen(name: str, port: int | None) -> socket.socket:
    """A listening socket on this port, or on one chosen now.

    Raises:
        HostsError: the port is taken, or none is free.
    """
    candidates = [port] if port else random.sample(_PORTS, _PORT_ATTEMPTS)
    for candidate in candidates:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((ADDRESS, candidate))
            listening.listen(64)
        except OSError:
            listening.close()
            continue
        listening.settimeout(0)
        return listening
    if port:
        raise HostsError(
            f"host {name}: its port {port} on {ADDRESS} is taken by another process; stop that "
            f"process (ss -ltnp 'sport = :{port}' names it), or remove the host's folder to give "
            "it a new port and key"
        )
    raise HostsError(
        f"host {name}: no free port on {ADDRESS} among {_PORT_ATTEMPTS} tried in "
        f"{_PORTS.start}-{_PORTS.stop - 1}"
    )
