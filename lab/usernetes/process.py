"""Starts, stops and finds the process of a folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from lab.hosts.folder import read_json, write_json
from lab.server_process import end, living, one_at_a_time, spawn
from lab.usernetes.folder import UsernetesFolder
from lab.usernetes.model import PluginSpec, PluginStatus, UsernetesError

_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.02

Report = Callable[[str], None]


def start(
    folder: Path,
    *,
    control_plane: Path,
    hosts: Path,
    report: Report = lambda _: None,
    kubelets: Path | None = None,
) -> PluginStatus:
    """Tell the kubelets until stopped; again: changes nothing.

    Args:
        folder: where everything about the stand-in is kept.
        control_plane: folder of the lab.
        hosts: folder of the simulated hosts; the node of a host has its name.
        report: receives a line for each step that takes time.
        kubelets: folder of the lab's kubelets; `kubelet` in that of the lab if it is None.

    Raises:
        UsernetesError: it did not come up; the message says why.
    """
    paths = UsernetesFolder(folder.resolve())
    spec = PluginSpec(hosts.resolve(), (kubelets or control_plane / "kubelet").resolve())
    try:
        paths.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with one_at_a_time(paths.start_lock):
            _serve(paths, spec.document(), report)
    except OSError as error:
        raise UsernetesError(
            f"the stand-in of rootless nodes in {paths.path} cannot be started: {error}; free space "
            "there, or choose another folder"
        ) from error
    return status(folder)


def stop(folder: Path) -> None:
    """End the process. Nothing to do is fine; its files stay."""
    paths = UsernetesFolder(folder.resolve())
    if not paths.path.exists():
        return
    with one_at_a_time(paths.start_lock):
        server = living(read_json(paths.process))
        if server is not None:
            end(server, _STOP_SECONDS)
        paths.ready.unlink(missing_ok=True)


def status(folder: Path) -> PluginStatus:
    """Whether it runs."""
    paths = UsernetesFolder(folder.resolve())
    server, ready = living(read_json(paths.process)), paths.ready.exists()
    if server is not None and ready:
        memory = server.memory_info().rss
        return PluginStatus(
            running=True, pid=server.pid, rss_bytes=memory, log=paths.log, detail="running"
        )
    gone = "it is gone without having been stopped" if ready else "not started"
    return PluginStatus(running=False, pid=None, rss_bytes=0, log=paths.log, detail=gone)


def _serve(paths: UsernetesFolder, wanted: dict[str, Any], report: Report) -> None:
    server = living(read_json(paths.process))
    if server is not None and read_json(paths.specs) == wanted and paths.ready.exists():
        return
    if server is not None:
        report("restarting the stand-in of rootless nodes")
        end(server, _STOP_SECONDS)
    write_json(paths.specs, wanted)
    paths.ready.unlink(missing_ok=True)
    report("starting the stand-in of rootless nodes")
    with paths.log.open("ab") as log:
        begin = log.tell()
        process = spawn("lab.usernetes", paths.path, log)
    try:
        _wait_until_ready(paths, psutil.Process(process.pid))
    except (UsernetesError, psutil.NoSuchProcess) as error:
        if process.poll() is None:
            process.kill()
            process.wait()
            raise
        lines = paths.log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
        raise UsernetesError(lines[-1] if lines else str(error)) from None


def _wait_until_ready(paths: UsernetesFolder, server: psutil.Process) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not paths.ready.exists():
        gone = not server.is_running() or server.status() == psutil.STATUS_ZOMBIE
        if gone or time.monotonic() > deadline:
            raise UsernetesError(
                f"the stand-in of rootless nodes in {paths.path} "
                + ("ended" if gone else f"was not ready in {_START_SECONDS:.0f} s")
                + f"; see {paths.log}"
            )
        time.sleep(_POLL_SECONDS)
