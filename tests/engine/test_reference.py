"""The engine does what Pulumi's own engine was recorded to do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.engine.recordings import SCENARIOS
from tests.engine.reference import run

# Steps before the first one with something that this engine refuses by name: transforms, and outputs
# of another stack (`rules/test_programs.py`).
PLAYED = {"09-options": 4, "10-read": 1}
OTHER = os.environ.get("REFERENCE_ENGINE")
"""Another engine's command, which plays everything; with REFERENCE_RECORD that is the new expectation."""


# Dozens of commands one after the other, each of which has five minutes.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_plays_as_recorded(scenario: str, warm: Path, tmp_path: Path) -> None:
    folder = tmp_path / "played"
    folder.mkdir()
    seen = run.play(scenario, OTHER or warm, folder, None if OTHER else PLAYED.get(scenario))
    if OTHER and os.environ.get("REFERENCE_RECORD"):
        run.record(scenario, seen)
    states: dict[str, Any] = {}
    played = zip(run.steps(scenario), seen, run.recorded(scenario), strict=False)
    for number, (step, got, wanted) in enumerate(played, 1):
        place, ordered = f"step {number} ({step.op})", step.order == "exact"
        expected = run.judged(wanted, ordered=ordered)
        for part, found in run.judged(got, ordered=ordered).items():
            assert found == expected[part], f"{place}: {part}"
        before = states.get(step.stack, {"deployment": {"resources": []}})
        assert run.event_faults(got["summary"].get("events", []), before, got["state"]) == [], place
        assert got["summary"]["exit"] == step.expect_exit, place
        assert got["leaks"] == [], place
        states[step.stack] = got["state"]
