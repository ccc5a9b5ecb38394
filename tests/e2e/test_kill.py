"""The engine killed at every step of an `up`: the next one carries on, nothing is made twice."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import checkout, settled
from tests.e2e.killing import ENDS, STARTS, up_through_kills

pytestmark = [pytest.mark.lab, pytest.mark.timeout(540)]


def when(run: int) -> tuple[str, int]:
    """By turns: steps have just ended and others are in the air; or one has just begun."""
    return (ENDS, 6 + run % 4) if run % 4 else (STARTS, 12)


def test_an_up_killed_at_every_step_converges(tmp_path_factory: pytest.TempPathFactory) -> None:
    with checkout(tmp_path_factory.mktemp("kill")) as dev:
        kills = up_through_kills(dev, when)
        assert kills >= 5, "too few kills to have met every part of the up"
        settled(dev)
