"""How long a tenancy has been worked on as it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from caas.controllers import tenancy_patience
from caas.controllers.tenancy_patience import Patience


def tenancy(generation: int, uid: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": "acme", "uid": uid, "generation": generation}}


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [100.0]
    # Of this module alone: other threads of this process have clocks too.
    monkeypatch.setattr(tenancy_patience, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    return clock


def test_it_counts_from_the_first_look(now: list[float]) -> None:
    patience = Patience()
    patience.begin(tenancy(1))
    now[0] += 3
    patience.begin(tenancy(1))
    assert patience.waited("acme") == 3


@pytest.mark.parametrize("changed", [tenancy(2), tenancy(1, uid="2")])
def test_what_is_asked_anew_is_begun_anew(now: list[float], changed: dict[str, Any]) -> None:
    patience = Patience()
    patience.begin(tenancy(1))
    now[0] += 3
    patience.begin(changed)
    assert patience.waited("acme") == 0


def test_what_is_forgotten_is_begun_anew(now: list[float]) -> None:
    patience = Patience()
    patience.begin(tenancy(1))
    now[0] += 3
    patience.forget("acme")
    patience.begin(tenancy(1))
    assert patience.waited("acme") == 0
