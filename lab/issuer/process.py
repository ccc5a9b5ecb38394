"""Starts, stops and finds the server process of an issuer's folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from lab.issuer import over_tls
from lab.issuer.files import read_json
from lab.issuer.model import IssuerError, IssuerFolder, IssuerStatus
from lab.issuer.tokens import ensure_key, url
from lab.server_process import end, living, one_at_a_time, spawn

if TYPE_CHECKING:
    from lab.control_plane.layout import Layout

_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.02


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
    paths.path.mkdir(parents=True, exist_ok=True)
    paths.path.chmod(0o700)
    with one_at_a_time(paths.lock):
        server = _server(paths)
        if server is not None and not over_tls.is_settled(paths, authority):
            end(server, _STOP_SECONDS)
            server = None
        if server is None:
            ensure_key(paths)
            over_tls.settle(paths, authority)
            _launch(paths)
    return status(folder)


def stop(folder: Path) -> None:
    """End the process; its keys and its address stay. Nothing to do is fine."""
    paths = IssuerFolder(folder.resolve())
    if not paths.path.exists():
        return
    with one_at_a_time(paths.lock):
        server = _server(paths)
        if server is not None:
            end(server, _STOP_SECONDS)
        paths.process.unlink(missing_ok=True)


def status(folder: Path) -> IssuerStatus:
    """Whether it runs, and where."""
    paths = IssuerFolder(folder.resolve())
    server, port = _server(paths), read_json(paths.port)
    secured = over_tls.known(paths)
    return IssuerStatus(
        running=server is not None,
        url=None if port is None else url(port),
        pid=server.pid if server else None,
        log=paths.log,
        keys_url=secured.url if secured else None,
        ca_certificate=secured.authority if secured else None,
        port=secured.port if secured else None,
    )


def _server(paths: IssuerFolder) -> psutil.Process | None:
    """The living process."""
    return living(read_json(paths.process))


def _launch(paths: IssuerFolder) -> None:
    paths.process.unlink(missing_ok=True)
    with paths.log.open("wb") as log:
        process = spawn("lab.issuer", paths.path, log)
    deadline = time.monotonic() + _START_SECONDS
    while not paths.process.exists():
        if process.poll() is not None:
            said = paths.log.read_text(errors="replace").strip().splitlines()
            raise IssuerError(said[-1] if said else f"the issuer ended; see {paths.log}")
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise IssuerError(f"the issuer did not come up in {_START_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)
