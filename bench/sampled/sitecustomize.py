"""In every Python of a bench: what it used of a processor, and in whose code.

Python imports this by its name from PYTHONPATH. A thread looks at the main thread every few milliseconds:
the innermost frame that is not of Python's own library says whose the processor time since the last look was.
Written to the folder `GPU_CLUSTERS_BENCH_SAMPLES`, one file for each process, again and again, because most
processes are ended from outside.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

EVERY_SECONDS = 0.005
WRITE_AFTER_SECONDS = 0.1

_root = os.environ["GPU_CLUSTERS_BENCH_ROOT"] + os.sep
_library = sysconfig.get_path("stdlib") + os.sep
_packages = sysconfig.get_path("purelib") + os.sep


def _whose(frame: FrameType | None) -> str:
    """The first part of a file's path below the project, `packages` or, with nothing else, `python`."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<"):
            file = os.path.realpath(file)
        if file.startswith(_packages):
            return "packages"
        if file.startswith(_root):
            return file.removeprefix(_root).partition(os.sep)[0]
        if not file.startswith((_library, "<")):
            return "elsewhere"
        frame = frame.f_back
    return "python"


def _look(main: int, file: Path) -> None:
    seen: Counter[str] = Counter()
    before, written, own = time.process_time(), 0.0, 0.0
    while True:
        time.sleep(EVERY_SECONDS)
        now = time.process_time()
        seen[_whose(sys._current_frames().get(main))] += now - before - (time.thread_time() - own)
        before, own = now, time.thread_time()
        if now - written >= WRITE_AFTER_SECONDS:
            written = now
            # Whole or not at all: the process may be ended in the middle of it.
            new = file.with_suffix(".new")
            new.write_text(json.dumps({"arguments": sys.orig_argv, "seconds": dict(seen)}))
            new.replace(file)


_file = Path(os.environ["GPU_CLUSTERS_BENCH_SAMPLES"], f"{os.getpid()}.json")
threading.Thread(target=_look, args=(threading.get_ident(), _file), daemon=True).start()
