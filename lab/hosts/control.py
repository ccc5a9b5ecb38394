"""The control socket of a hosts' server: tell it to look again at what it serves."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.hosts.folder import HostsFolder
from lab.hosts.model import HostsError

SOCKET = "control.sock"
_TIMEOUT_SECONDS = 120
"""A host that is made anew may have a real node under it, whose programs start on a busy machine."""


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A name for a path that fits a unix socket address (108 bytes), however deep it lies."""
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)


def listen(path: Path, mode: int) -> socket.socket:
    """A listening unix socket at `path`, in place of whatever a dead server left there."""
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(path) as name:
        server.bind(name)
    path.chmod(mode)
    server.listen(64)
    server.settimeout(0)
    return server


def tell(folder: HostsFolder, what: str) -> bool:
    """Tell the server that its `hosts` or the `faults NAME` changed; wait until it has acted on it.

    False when no server runs: then there is nobody to tell.
    """
    path = folder.path / SOCKET
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT_SECONDS)
        try:
            with short_path(path) as name:
                connection.connect(name)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        try:
            connection.sendall(f"{what}\n".encode())
            answer = connection.recv(4096).decode().strip()
        except OSError as error:
            raise HostsError(
                f"the server of the hosts in {folder.path} does not answer ({error}); "
                f"see {folder.log}, then stop and start it"
            ) from error
    if answer != "ok":
        raise HostsError(
            f"the server of the hosts in {folder.path}: {answer or 'ended'} (see {folder.log})"
        )
    return True
