"""Ports on loopback: chosen once, kept, and never given to two labs of the same user.

A port that changed would change the kubeconfig and with it the stack, so they are kept over
restarts. They lie below those of simulated hosts and below the range from which the kernel takes the
ports of outgoing connections: one of those could hold a kept port just when the lab starts again.
"""

import errno
import json
import random
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from lab.control_plane.files import exclusive
from lab.control_plane.model import ControlPlaneError
from lab.files import write_atomic
from lab.tools.cache import cache_root

LOOPBACK = "127.0.0.1"
_FIRST, _LAST = 20000, 25999
_LOCK_SECONDS = 120.0


def reserve(file: Path, names: Sequence[str], registry: Path | None = None) -> dict[str, int]:
    """The ports in `file`, or new ones written to it.

    `registry` remembers the ports of all labs of this user, running or not, until their file is
    gone.
    """
    ports = kept(file)
    if all(name in ports for name in names):
        return {name: ports[name] for name in names}
    registry = registry or cache_root() / "ports.json"
    lock = registry.with_suffix(".lock")
    busy = f"another command has been choosing ports for {_LOCK_SECONDS:.0f} s, holding {lock}"
    with exclusive(lock, wait_seconds=_LOCK_SECONDS, busy=busy):
        owners = {p: o for p, o in _owners(registry).items() if Path(o).exists()}
        for name in names:
            if name not in ports:
                ports[name] = _free_port(taken={*map(int, owners), *ports.values()})
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, _encode(ports))
        owners |= {str(port): str(file) for port in ports.values()}
        write_atomic(registry, _encode(owners))
    return ports


def kept(file: Path) -> dict[str, int]:
    """The ports in `file`, none when there is none; raises `ControlPlaneError` when damaged."""
    try:
        return {str(name): int(port) for name, port in json.loads(file.read_text()).items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, TypeError) as error:
        raise ControlPlaneError(
            f"{file} is damaged ({error}); remove it to let the lab choose new ports"
        ) from error


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of loopback now."""
    # As servers do it: what lingers of closed connections is no obstacle.
    return _can_bind(port, reuse=True)


def _is_unused(port: int) -> bool:
    """Whether the port is nobody's, also not that of a program that just does not listen."""
    return _can_bind(port, reuse=False)


def _can_bind(port: int, *, reuse: bool) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def holder_of(port: int) -> str:
    """Who listens on the port, for a message: `nginx (pid 12)`, or `another program`."""
    try:
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,)
            if listens and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        # Other users' sockets cannot be looked into everywhere; the message does without.
        return "another program"
    return "another program"


def _free_port(taken: set[int]) -> int:
    choose = random.SystemRandom()
    for _ in range(1000):
        port = choose.randint(_FIRST, _LAST)
        if port not in taken and _is_unused(port):
            return port
    raise ControlPlaneError(
        f"no free port between {_FIRST} and {_LAST} on {LOOPBACK}; stop labs that are not needed"
    )


def _owners(registry: Path) -> dict[str, str]:
    try:
        return {str(port): str(owner) for port, owner in json.loads(registry.read_text()).items()}
    except (FileNotFoundError, ValueError, AttributeError):
        # It only avoids meetings: made anew from nothing it is as good as before, almost.
        return {}


def _encode(content: Mapping[str, object]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()
