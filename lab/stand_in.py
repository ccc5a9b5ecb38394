"""A stand-in that is one process with a folder: started as it is wanted, told apart from another, stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from lab.hosts.folder import read_json, write_json
from lab.server_process import ServerFolder, end, living, one_at_a_time, runs, spawn

_START_SECONDS = 120.0
"""Half a second does where nothing else runs; one that ends is told at once."""
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.02

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StandInStatus:
    """The process of one folder."""

    running: bool
    pid: int | None
    rss_bytes: int
    log: Path
    detail: str


@dataclass(frozen=True, slots=True)
class StandIn:
    """One kind: the module whose `serve FOLDER` it is, what people call it, how it fails."""

    module: str
    called: str
    """`the stand-in of the GPU Operator`."""
    error: type[Exception]

    def start(
        self, paths: ServerFolder, specs: Path, wanted: dict[str, Any], report: Report
    ) -> StandInStatus:
        """Let it run as it is wanted; one that does is left alone.

        Args:
            paths: of its folder.
            specs: where what it is to do is written for it.
            wanted: what it is to do.
            report: receives a line for each step that takes time.
        """
        try:
            paths.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            with one_at_a_time(paths.start_lock):
                self._serve(paths, specs, wanted, report)
        except OSError as error:
            raise self.error(
                f"{self.called} in {paths.path} cannot be started: {error}; free space there, or choose "
                "another folder"
            ) from error
        return self.status(paths)

    def stop(self, paths: ServerFolder) -> None:
        """End the process. Nothing to do is fine; its files stay."""
        if not paths.path.exists():
            return
        with one_at_a_time(paths.start_lock):
            server = living(read_json(paths.process))
            if server is not None:
                end(server, _STOP_SECONDS)
            paths.ready.unlink(missing_ok=True)

    def status(self, paths: ServerFolder) -> StandInStatus:
        """Whether it runs."""
        server, ready = living(read_json(paths.process)), paths.ready.exists()
        if server is not None and ready:
            memory = server.memory_info().rss
            return StandInStatus(
                running=True, pid=server.pid, rss_bytes=memory, log=paths.log, detail="running"
            )
        gone = "it is gone without having been stopped" if ready else "not started"
        return StandInStatus(running=False, pid=None, rss_bytes=0, log=paths.log, detail=gone)

    def _serve(
        self, paths: ServerFolder, specs: Path, wanted: dict[str, Any], report: Report
    ) -> None:
        server = living(read_json(paths.process))
        if server is not None and read_json(specs) == wanted and paths.ready.exists():
            return
        if server is not None:
            report(f"restarting {self.called}")
            end(server, _STOP_SECONDS)
        write_json(specs, wanted)
        paths.ready.unlink(missing_ok=True)
        report(f"starting {self.called}")
        with paths.log.open("ab") as log:
            begin = log.tell()
            process = spawn(self.module, paths.path, log)
        try:
            self._wait_until_ready(paths, psutil.Process(process.pid))
        except (self.error, psutil.NoSuchProcess) as error:
            if process.poll() is None:
                process.kill()
                process.wait()
                raise
            lines = paths.log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
            raise self.error(lines[-1] if lines else str(error)) from None

    def _wait_until_ready(self, paths: ServerFolder, server: psutil.Process) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not paths.ready.exists():
            gone = not runs(server)
            if gone or time.monotonic() > deadline:
                raise self.error(
                    f"{self.called} in {paths.path} "
                    + ("ended" if gone else f"was not ready in {_START_SECONDS:.0f} s")
                    + f"; see {paths.log}"
                )
            time.sleep(_POLL_SECONDS)
