"""A lock on a folder that is waited for."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from lab.control_plane.model import ControlPlaneError

_POLL_SECONDS = 0.1


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
