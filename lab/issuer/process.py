"""Starts, stops and finds the server process of an issuer's folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lab.files import read_json
from lab.issuer import over_tls
from lab.issuer.model import IssuerError, IssuerFolder, IssuerStatus
from lab.issuer.tokens import ensure_key, url
from lab.server_process import Server

if TYPE_CHECKING:
    from lab.control_plane.layout import Layout

SERVER = Server("lab.issuer", "the issuer", IssuerError)


def start(folder: Path, authority: Layout | None = None) -> IssuerStatus:
    """Serve from a process that outlives this one; one that runs as asked is left alone.

    An issuer that was stopped or killed comes back with the same addresses and keys.

    Args:
        folder: where its files are kept.
        authority: the lab's, for programs that run as pods of real nodes: its keys are then served over
            TLS too, on a second port that the nodes have to open (`IssuerStatus.port`). None: on loopback
            alone.

    Raises:
        IssuerError: another process took its port, there is no such authority, or it did not come up.
    """
    paths = IssuerFolder(folder.resolve())
    with SERVER.starting(paths):
        if not SERVER.status(paths).running or not over_tls.is_settled(paths, authority):
            SERVER.end(paths)
            ensure_key(paths)
            over_tls.settle(paths, authority)
            SERVER.launch(paths)
    return status(folder)


def stop(folder: Path) -> None:
    """End the process; its keys and its address stay. Nothing to do is fine."""
    SERVER.stop(IssuerFolder(folder.resolve()))


def status(folder: Path) -> IssuerStatus:
    """Whether it runs, and where."""
    paths = IssuerFolder(folder.resolve())
    server, port = SERVER.status(paths), read_json(paths.port)
    secured = over_tls.known(paths)
    return IssuerStatus(
        running=server.running,
        url=None if port is None else url(port),
        pid=server.pid,
        log=paths.log,
        keys_url=secured.url if secured else None,
        ca_certificate=secured.authority if secured else None,
        port=secured.port if secured else None,
    )
