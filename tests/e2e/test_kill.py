"""The engine killed at every step of an `up`: the next one carries on, nothing is made twice."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess

import pytest

from tests.e2e.conftest import checkout, kill_all, settled, told

pytestmark = [pytest.mark.lab, pytest.mark.timeout(540)]

STARTS, ENDS = "resourcePreEvent", "resOutputsEvent"
CHANGES = {"create", "update", "replace", "create-replacement", "delete-replaced", "delete"}


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


def test_an_up_killed_at_every_step_converges(tmp_path_factory: pytest.TempPathFactory) -> None:
    with checkout(tmp_path_factory.mktemp("kill")) as dev:
        assert dev.run("lab", "start").returncode == 0
        (dev.lab / "state").mkdir(exist_ok=True)
        assert dev.engine("stack", "init").returncode == 0
        finished = 0
        for run in itertools.count():
            assert run < 60, "the ups make no progress"
            process = dev.start_engine("up", "--yes", "--skip-preview", "--json")
            # By turns: steps have just ended and others are in the air; or one has just begun.
            event, number = (ENDS, 6 + run % 4) if run % 4 else (STARTS, 12)
            if not kill_at(process, event, number, everything=bool(run % 2)):
                break
            assert dev.engine("cancel", "--yes").returncode == 0
            assert finished <= len(dev.state()), "a finished step was lost"
            finished = len(dev.state())
        assert run >= 5, "too few kills to have met every part of the up"

        settled(dev)
