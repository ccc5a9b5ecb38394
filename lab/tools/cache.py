"""The folder in which fetched and built tools are kept, shared by all labs of a user.

An entry appears by a rename of a finished folder, so a reader never sees half a program, and
whoever writes holds the lock, so two processes never build the same thing.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from lab.tools.catalogue import Platform, Tool
from lab.tools.model import Report, ToolError

_POLL_SECONDS = 0.2


def cache_root() -> Path:
    """`$XDG_CACHE_HOME/gpu-clusters`, by default under ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "gpu-clusters"


def touch(path: Path) -> None:
    """Make it the youngest: the clock of many file systems stands still for milliseconds."""
    now = time.time_ns()
    os.utime(path, ns=(now, now))


class ToolCache:
    """Finished programs by name, version and platform."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_root() / "tools"

    def entry(self, tool: Tool, platform: Platform) -> Path:
        """Where this tool lies, whether it is there or not."""
        return self.folder / f"{tool.name}-{tool.version}-{platform}" / tool.name

    def find(self, tool: Tool, platform: Platform) -> Path | None:
        """The tool if it is there and can be executed."""
        program = self.entry(tool, platform)
        return program if program.is_file() and os.access(program, os.X_OK) else None

    def install(
        self,
        tool: Tool,
        platform: Platform,
        program: Path,
        origin: str,
        beside: Path | None = None,
    ) -> Path:
        """Take over `program`, and the folder `beside` that it needs (moved away).

        `origin` says in words where it came from.
        """
        target = self.entry(tool, platform).parent
        with self.workspace() as made:
            folder = made / target.name
            folder.mkdir()
            shutil.move(program, folder / tool.name)
            if beside is not None:
                shutil.move(beside, folder / beside.name)
            (folder / "origin").write_text(origin + "\n")
            shutil.rmtree(target, ignore_errors=True)
            folder.rename(target)
        return target / tool.name

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """A temporary folder beside the entries, gone afterwards whatever happens."""
        folder = self.folder / f".tmp-{secrets.token_hex(6)}"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise ToolError(
                f"cannot write to the tool cache {self.folder}: {error.strerror}; "
                f"make it writable or set XDG_CACHE_HOME to a folder that is"
            ) from error
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def lock(self, report: Report) -> Iterator[None]:
        """Wait until no other process fetches or builds, then be the only one."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = (self.folder / ".lock").open("a+")
        except OSError as error:
            raise ToolError(
                f"cannot write to the tool cache {self.folder}: {error.strerror}; "
                f"make it writable or set XDG_CACHE_HOME to a folder that is"
            ) from error
        with handle:
            told = False
            while not _try_lock(handle.fileno()):
                if not told:
                    handle.seek(0)
                    holder = handle.read().strip() or "unknown"
                    report(f"waiting for process {holder}, which is getting tools")
                    told = True
                time.sleep(_POLL_SECONDS)
            handle.truncate(0)
            handle.write(str(os.getpid()))
            handle.flush()
            # What an interrupted process left behind: nobody else can be writing now.
            for leftover in self.folder.glob(".tmp-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
