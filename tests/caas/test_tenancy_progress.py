"""How long a tenancy has been worked on as it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from caas.controllers import tenancy
from caas.controllers.tenancy import Progress


def body(generation: int, uid: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": "acme", "uid": uid, "generation": generation}}


@pytest.mark.parametrize(("now", "seconds"), [(body(1), 3), (body(2), 0), (body(1, uid="2"), 0)])
def test_it_counts_from_the_first_look_at_what_is_asked_for_now(
    monkeypatch: pytest.MonkeyPatch, now: dict[str, Any], seconds: float
) -> None:
    clock = [100.0]
    # Of this module alone: other threads of this process have clocks too.
    monkeypatch.setattr(tenancy, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    progress = Progress(body(1))
    assert progress.waited() == 0
    clock[0] += 3
    progress.body = now
    assert progress.waited() == seconds
