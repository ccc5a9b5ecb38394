"""The engine does what Pulumi's own engine was recorded to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.engine import recordings
from tests.engine.warmkit import Warm
from tests.fixtures.keys import quick_keys

COLD = {"04-aliases"}
# Steps before the first one with something that this engine refuses by name: transforms, and outputs
# of another stack (`rules/test_programs.py`).
PLAYED = {"09-options": 4, "10-read": 1}
run = recordings.load("run")


def test_all_recordings_are_found() -> None:
    assert len(recordings.SCENARIOS) >= 12


# Dozens of commands one after the other, each of which has five minutes.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", recordings.SCENARIOS)
def test_a_scenario_plays_as_recorded(
    scenario: str, warm: Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in quick_keys(tmp_path / "keys").items():
        monkeypatch.setenv(name, value)
    # One of them with commands as a user starts them.
    engine = f"{sys.executable} -m engine" if scenario in COLD else str(warm.engine)
    played = run.Scenario(recordings.FOLDER / "scenarios" / scenario)
    del played.spec["steps"][PLAYED.get(scenario, len(played.spec["steps"])) :]
    assert run.judge(played, run.Options(engine)) == []
