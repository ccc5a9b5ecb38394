"""Starts, stops and finds the server process of an issuer's folder."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from lab.issuer.files import exclusive, read_json
from lab.issuer.model import IssuerError, IssuerFolder, IssuerStatus
from lab.issuer.tokens import ensure_key, url

_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_SAME_TIME_SECONDS = 1.0
_POLL_SECONDS = 0.02


def start(folder: Path) -> IssuerStatus:
    """Serve from a process that outlives this one; one that runs already is left alone.

    An issuer that was stopped or killed comes back with the same address and keys.

    Raises:
        IssuerError: another process took its port, or it did not come up.
    """
    paths = IssuerFolder(folder.resolve())
    paths.path.mkdir(parents=True, exist_ok=True)
    paths.path.chmod(0o700)
    with exclusive(paths.lock):
        if _server(paths) is None:
            ensure_key(paths)
            _launch(paths)
    return status(folder)


def stop(folder: Path) -> None:
    """End the process; its keys and its address stay. Nothing to do is fine."""
    paths = IssuerFolder(folder.resolve())
    if not paths.path.exists():
        return
    with exclusive(paths.lock):
        server = _server(paths)
        if server is not None:
            server.terminate()
            try:
                server.wait(_STOP_SECONDS)
            except psutil.TimeoutExpired:
                server.kill()
                server.wait(_STOP_SECONDS)
        paths.process.unlink(missing_ok=True)


def status(folder: Path) -> IssuerStatus:
    """Whether it runs, and where."""
    paths = IssuerFolder(folder.resolve())
    server, port = _server(paths), read_json(paths.port)
    return IssuerStatus(
        running=server is not None,
        url=None if port is None else url(port),
        pid=server.pid if server else None,
        log=paths.log,
    )


def _server(paths: IssuerFolder) -> psutil.Process | None:
    """The living process. A pid alone does not prove it: pids are used again."""
    found = read_json(paths.process)
    if found is None:
        return None
    try:
        process = psutil.Process(found["pid"])
        same = abs(process.create_time() - found["created"]) < _SAME_TIME_SECONDS
        alive = process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return None
    return process if same and alive else None


def _launch(paths: IssuerFolder) -> None:
    paths.process.unlink(missing_ok=True)
    project = str(Path(__file__).resolve().parents[2])
    import_path = os.pathsep.join(filter(None, [project, os.environ.get("PYTHONPATH", "")]))
    with paths.log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.issuer", "serve", str(paths.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env={**os.environ, "PYTHONPATH": import_path},
        )
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
