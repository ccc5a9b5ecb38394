"""Runs the engine and writes down what it took: `measured.py FILE ARGUMENT…`."""

from __future__ import annotations

import atexit
import json
import pathlib
import resource
import runpy
import sys


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


atexit.register(measure, pathlib.Path(sys.argv[1]))
sys.argv = ["engine", *sys.argv[2:]]
runpy.run_module("engine", run_name="__main__")
