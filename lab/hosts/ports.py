"""Where simulated hosts listen: on loopback ports chosen once and then kept, or where their real node is."""

import random
import socket
from dataclasses import dataclass

from lab.hosts.model import ADDRESS, HostsError
from lab.hosts.network import Network, listening
from lab.server_process import one_at_a_time
from lab.tools.cache import cache_root

_PORTS = range(26000, 32000)
"""Below the range from which systems choose ports of outgoing connections, so that a port that is
free now is still free after a restart; above those of control planes."""


def _next() -> int:
    """The port whose turn it is among all servers of this user.

    In turn: the port that a stopped host will come back to is the last that another host would come to.
    """
    anywhere = random.SystemRandom().choice(_PORTS)
    file = cache_root() / "next-host-port"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(file):
            text = file.read_text()
            turn = int(text) if text.isdecimal() and int(text) in _PORTS else anywhere
            file.write_text(str(turn + 1))
    except OSError:
        # It only avoids meetings: a port that is taken right now is noticed anyway.
        return anywhere
    return turn


@dataclass(frozen=True, slots=True)
class Place:
    """Where something answers; `network` is that of another process, None the machine's own."""

    address: str = ADDRESS
    port: int | None = None
    """None: one is chosen when it is first listened on."""
    network: Network | None = None

    def listen(self, name: str) -> socket.socket:
        """A listening socket here, for the host of this name.

        Raises:
            HostsError: it cannot be had; the message says what to do.
        """
        if self.network is None or self.port is None:
            return listen(name, self.port)
        try:
            return self.network.listen(self.address, self.port)
        except OSError as error:
            raise HostsError(
                f"host {name}: {self.address}:{self.port} cannot be listened on in the network of its node "
                f"({error.strerror}); stop and start the real nodes"
            ) from error


def listen(name: str, port: int | None) -> socket.socket:
    """A listening socket on this port, or on one chosen now.

    Raises:
        HostsError: the port is taken, or none is free.
    """
    candidates = [port] if port else (_next() for _ in _PORTS)
    for candidate in candidates:
        try:
            return listening(ADDRESS, candidate, kept=port is not None)
        except OSError:
            continue
    if port:
        raise HostsError(
            f"host {name}: its port {port} on {ADDRESS} is taken by another process; stop that "
            f"process (ss -ltnp 'sport = :{port}' names it), or remove the host's folder to give "
            "it a new port and key"
        )
    raise HostsError(
        f"host {name}: no free port on {ADDRESS} in {_PORTS.start}-{_PORTS.stop - 1}; stop labs that are "
        "not needed"
    )
