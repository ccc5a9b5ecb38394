"""The engine does what Pulumi's own engine was recorded to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.warmkit import Warm
from tests.fixtures.keys import quick_keys

REFERENCE = Path(__file__).parent / "reference"
COLD = {"04-aliases"}
SCENARIOS = sorted(path.parent.name for path in REFERENCE.glob("scenarios/*/steps.yaml"))


def test_all_recordings_are_found() -> None:
    assert len(SCENARIOS) >= 12


# Dozens of commands one after the other, each of which has five minutes.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_plays_as_recorded(scenario: str, warm: Warm, tmp_path: Path) -> None:
    # One of them with commands as a user starts them.
    engine = f"{sys.executable} -m lab.engine" if scenario in COLD else str(warm.engine)
    done = subprocess.run(
        [sys.executable, str(REFERENCE / "run.py"), "--engine", engine, "--lines", "60", scenario],
        cwd=tmp_path,
        env={**os.environ, **quick_keys(tmp_path / "keys")},
        capture_output=True,
        text=True,
        check=False,
        timeout=880,
    )
    assert done.returncode == 0, done.stdout + done.stderr
