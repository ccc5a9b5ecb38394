"""Writing files so that a reader never sees half of one, and a lock on a folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from lab.control_plane.model import ControlPlaneError

_POLL_SECONDS = 0.1


def write_atomic(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replace `path` with `content`; does nothing when it holds that already."""
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == content and path.stat().st_mode & 0o777 == mode:
            return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        # Created with its mode: a private key is never readable for others, not for an instant.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def exclusive(lock: Path, *, wait_seconds: float, busy: str) -> Iterator[None]:
    """Hold `lock`; raises `ControlPlaneError` with `busy` when another process keeps it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_seconds
    with lock.open("a+") as handle:
        while True:
            try:
                fcntl.flock(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    handle.seek(0)
                    holder = handle.read().strip()
                    raise ControlPlaneError(f"{busy} (process {holder or 'unknown'})") from None
                time.sleep(_POLL_SECONDS)
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield
