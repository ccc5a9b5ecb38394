"""The engine does what Pulumi's own engine was recorded to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.engine.warmkit import Warm
from tests.fixtures.keys import quick_keys

REFERENCE = Path(__file__).parent / "reference"
COLD = {"04-aliases"}
# Steps before the first one with something that this engine refuses by name: transforms, and outputs
# of another stack (`rules/test_programs.py`).
PLAYED = {"09-options": 4, "10-read": 1}
SCENARIOS = sorted(path.parent.name for path in REFERENCE.glob("scenarios/*/steps.yaml"))


def test_all_recordings_are_found() -> None:
    assert len(SCENARIOS) >= 12


# Dozens of commands one after the other, each of which has five minutes.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_plays_as_recorded(scenario: str, warm: Warm, tmp_path: Path) -> None:
    # One of them with commands as a user starts them.
    engine = f"{sys.executable} -m engine" if scenario in COLD else str(warm.engine)
    scenarios = REFERENCE / "scenarios"
    if scenario in PLAYED:
        scenarios = tmp_path / "scenarios"
        for name in ("common", scenario):
            shutil.copytree(REFERENCE / "scenarios" / name, scenarios / name)
        file = scenarios / scenario / "steps.yaml"
        spec = yaml.safe_load(file.read_text())
        file.write_text(yaml.safe_dump({**spec, "steps": spec["steps"][: PLAYED[scenario]]}))
    runner = [sys.executable, str(REFERENCE / "run.py"), "--folder", str(scenarios)]
    done = subprocess.run(
        [*runner, "--engine", engine, "--lines", "60", scenario],
        cwd=tmp_path,
        env={**os.environ, **quick_keys(tmp_path / "keys")},
        capture_output=True,
        text=True,
        check=False,
        timeout=880,
    )
    assert done.returncode == 0, done.stdout + done.stderr
