"""The engine killed at every step of an `up`: the next one carries on, nothing is made twice."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from lab.hosts import journal
from tests.e2e.conftest import Checkout, checkout

pytestmark = [pytest.mark.lab, pytest.mark.timeout(540)]

STARTS, ENDS = "resourcePreEvent", "resOutputsEvent"
CHANGES = {"create", "update", "replace", "create-replacement", "delete-replaced", "delete"}


def kill_at(process: subprocess.Popen[str], event: str, number: int, *, whole_group: bool) -> bool:
    """Kill -9 at the n-th event of this kind; False if the run ended before."""
    assert process.stdout is not None
    seen = 0
    for line in process.stdout:
        with contextlib.suppress(ValueError):
            metadata = json.loads(line).get(event, {}).get("metadata", {})
            seen += metadata.get("op") in CHANGES
        if seen == number:
            if whole_group:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()  # program and providers go on for a while, as after a crash
            process.wait()
            return True
    assert process.wait() == 0
    return False


def test_an_up_killed_at_every_step_converges(tmp_path_factory: pytest.TempPathFactory) -> None:
    with checkout(tmp_path_factory.mktemp("kill")) as dev:
        assert dev.run("lab", "start").returncode == 0
        (dev.lab / "state").mkdir(exist_ok=True)
        assert dev.engine("stack", "init").returncode == 0
        groups: list[int] = []
        finished = 0
        for run in itertools.count():
            assert run < 60, "the ups make no progress"
            process = dev.start_engine("up", "--yes", "--skip-preview", "--json")
            groups.append(process.pid)
            # By turns: steps have just ended and others are in the air; or one has just begun.
            event, number = (ENDS, 6 + run % 4) if run % 4 else (STARTS, 12)
            if not kill_at(process, event, number, whole_group=bool(run % 2)):
                break
            assert dev.engine("cancel", "--yes").returncode == 0
            assert finished <= len(dev.state()), "a finished step was lost"
            finished = len(dev.state())
        end_leftovers(groups)
        assert run >= 5, "too few kills to have met every part of the up"

        settled(dev)


def settled(dev: Checkout) -> None:
    """Everything is there once, and nothing is left to do."""
    if dev.plan():
        dev.up()
    assert dev.plan("--refresh") == []
    resources = dev.state()
    assert [urn for urn, n in Counter(r["urn"] for r in resources).items() if n > 1] == []
    assert len([r for r in resources if r["type"].endswith(":FabricPartitions")]) == 2
    for host in ("hgx-01", "hgx-02"):
        assert dev.active_partitions(host) == [1, 5, 12, 14]
        assert journal.read(dev.lab / "hosts", host, "harm") == []
        # Written whole or not at all: no temporary file of a killed write is left.
        assert dev.on_host(host, "ls -A /etc/cdi").split() == ["nvidia.com-pgpu.json"]


def end_leftovers(groups: list[int]) -> None:
    """End programs and providers that outlived a killed engine."""
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def test_ctrl_c_twice_leaves_a_state_that_the_next_up_repairs(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with checkout(tmp_path_factory.mktemp("interrupt")) as dev:
        assert dev.run("lab", "start").returncode == 0
        (dev.lab / "state").mkdir(exist_ok=True)
        assert dev.engine("stack", "init").returncode == 0
        process = dev.start_engine("up", "--yes", "--skip-preview", "--json")
        assert process.stdout is not None
        for line in process.stdout:
            if ENDS in line and '"op":"create"' in line.replace(" ", ""):
                break
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(60) != 0
        assert "Traceback" not in rest
        end_leftovers([process.pid])
        assert not list(Path(dev.lab / "state" / ".pulumi" / "locks").rglob("*.json"))
        dev.up()
        settled(dev)
