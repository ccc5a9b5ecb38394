"""Runs of the engine that are killed, and the ones that carry on."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
from collections.abc import Callable

from tests.e2e.conftest import Checkout, kill_all, told

STARTS, ENDS = "resourcePreEvent", "resOutputsEvent"
CHANGES = {"create", "update", "replace", "create-replacement", "delete-replaced", "delete"}
MOST_RUNS = 60


def kill_at(process: subprocess.Popen[str], event: str, number: int, *, everything: bool) -> bool:
    """Kill -9 at the n-th event of this kind; False if the run ended before."""
    seen, said = 0, list[str]()
    for line in told(process):
        said.append(line)
        with contextlib.suppress(ValueError):
            metadata = json.loads(line).get(event, {}).get("metadata", {})
            seen += metadata.get("op") in CHANGES
        if seen == number:
            if everything:
                kill_all(process)
            else:
                process.kill()  # program and providers go on for a while, as after a crash
            process.wait()
            return True
    assert process.wait() == 0, "".join(said[-20:])
    return False


def up_through_kills(dev: Checkout, when: Callable[[int], tuple[str, int]]) -> int:
    """Begin an `up` again after each kill, until one ends by itself; how many were killed.

    `when` gives for each run at which event, and which one of its kind, it is killed.
    """
    assert dev.run("lab", "start").returncode == 0
    (dev.lab / "state").mkdir(exist_ok=True)
    assert dev.engine("stack", "init").returncode == 0
    finished = 0
    for run in itertools.count():
        assert run < MOST_RUNS, "the ups make no progress"
        process = dev.start_engine("up", "--yes", "--skip-preview", "--json")
        event, number = when(run)
        if not kill_at(process, event, number, everything=bool(run % 2)):
            return run
        assert dev.engine("cancel", "--yes").returncode == 0
        assert finished <= len(dev.state()), "a finished step was lost"
        finished = len(dev.state())
    raise AssertionError
