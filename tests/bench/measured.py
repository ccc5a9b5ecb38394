"""Runs the engine and writes down what it took: `measured.py FILE [--rewriting] ARGUMENT…`.

With `--rewriting` the whole state is written around every step, as Pulumi does on a file backend.
"""

from __future__ import annotations

import atexit
import json
import pathlib
import resource
import runpy
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.engine.state import Snapshot


def measure(file: pathlib.Path) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    theirs = resource.getrusage(resource.RUSAGE_CHILDREN)
    # The peak that getrusage gives begins with that of the process which started this one.
    fields = {
        key: value.split()[0]
        for file_ in ("io", "status")
        for key, _, value in (
            line.partition(":")
            for line in pathlib.Path("/proc/self", file_).read_text().splitlines()
        )
        if key in ("wchar", "VmHWM")
    }
    taken = {
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "others_cpu_seconds": theirs.ru_utime + theirs.ru_stime,
        "peak_bytes": int(fields["VmHWM"]) * 1024,
        "written_bytes": int(fields["wchar"]),
    }
    file.write_text(json.dumps(taken))


def rewrite() -> None:
    from lab.engine.backend.store import CheckpointStore

    def save(self: CheckpointStore, _entries: object, snapshot: Callable[[], Snapshot]) -> None:
        self.save(snapshot())

    CheckpointStore.record = CheckpointStore.fold = save  # type: ignore[assignment, method-assign]


atexit.register(measure, pathlib.Path(sys.argv[1]))
sys.argv = ["lab.engine", *sys.argv[2:]]
if "--rewriting" in sys.argv:
    sys.argv.remove("--rewriting")
    rewrite()
runpy.run_module("lab.engine", run_name="__main__")
