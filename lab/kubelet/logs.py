"""Logs of containers in the form that container runtimes write: one file per run, a time on each line."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

LARGEST_BYTES = 10 << 20
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which part of a log is asked for, as in Kubernetes' API. `since` is a point in time."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None


class ContainerLog:
    """The logs of one container, a file per run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, number: int) -> Path:
        """The file of a run; the first is 0."""
        return self._folder / f"{number}.log"

    def append(self, run: int, stream: str, text: bytes) -> None:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self.run(run)
        if path.exists() and path.stat().st_size > LARGEST_BYTES:
            # As a kubelet does: the older part goes, and cannot be asked for any more.
            path.unlink()
        with path.open("ab") as file:
            file.write(f"{now} {stream} F ".encode() + text + b"\n")

    def latest(self) -> int | None:
        runs = [int(file.stem) for file in self._folder.glob("*.log")]
        return max(runs, default=None)

    async def read(self, options: LogOptions, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Lines with their ends, as asked; following stops when `ended` says so."""
        latest = self.latest()
        run = None if latest is None else latest - int(options.previous)
        if run is None or not self.run(run).exists():
            if options.previous or not options.follow:
                return
            run = 0
        left = options.limit_bytes
        async for line in _lines(self.run(run), options, ended):
            shown = line if left is None else line[:left]
            yield shown
            if left is not None:
                left -= len(shown)
                if left <= 0:
                    return


async def _lines(
    file: Path, options: LogOptions, ended: Callable[[], bool]
) -> AsyncIterator[bytes]:
    while not file.exists():
        if ended():
            return
        await asyncio.sleep(_POLL_SECONDS)
    log = file.open("rb")
    try:
        kept = [line for line in _whole_lines(log) if _is_wanted(line, options.since)]
        for line in (
            kept if options.tail is None else kept[len(kept) - min(options.tail, len(kept)) :]
        ):
            yield _shown(line, timestamps=options.timestamps)
        while options.follow:
            # Asked before reading: what is written before the end is read after this.
            over = ended()
            for line in _whole_lines(log):
                yield _shown(line, timestamps=options.timestamps)
            if over:
                return
            await asyncio.sleep(_POLL_SECONDS)
            if _was_replaced(log, file):
                for line in _whole_lines(log):
                    yield _shown(line, timestamps=options.timestamps)
                log.close()
                log = file.open("rb")
    finally:
        log.close()


def _was_replaced(log: BinaryIO, file: Path) -> bool:
    try:
        return file.stat().st_ino != os.fstat(log.fileno()).st_ino
    except FileNotFoundError:
        # Between two parts, or the pod is gone.
        return False


def _whole_lines(log: BinaryIO) -> list[bytes]:
    lines = []
    while line := log.readline():
        if not line.endswith(b"\n"):
            log.seek(-len(line), 1)
            break
        lines.append(line)
    return lines


def _is_wanted(line: bytes, since: datetime | None) -> bool:
    return since is None or datetime.fromisoformat(line.split(b" ", 1)[0].decode()) >= since


def _shown(line: bytes, *, timestamps: bool) -> bytes:
    when, _, _, text = line.split(b" ", 3)
    return when + b" " + text if timestamps else text
