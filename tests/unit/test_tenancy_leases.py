"""Which GPUs a tenancy that is being deleted waits for."""

from __future__ import annotations

from typing import Any

import pytest

from gpuclusters.domain.tenancy_leases import awaited


def lease(name: str, phase: str, tenant: str | None = None) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": phase}
    if tenant:
        status["holder"] = {"tenant": tenant}
    return {"metadata": {"name": name}, "status": status}


@pytest.mark.parametrize("phase", ["Reserved", "Activating", "Leased", "Releasing"])
def test_what_the_tenant_holds_is_waited_for(phase: str) -> None:
    assert awaited("acme", [], [lease("g1", phase, "acme")]) == {"g1": phase}


@pytest.mark.parametrize("phase", ["Resetting", "Scrubbing", "Verifying"])
def test_a_gpu_without_holder_is_followed_by_name_until_it_is_scrubbed(phase: str) -> None:
    assert awaited("acme", ["g1"], [lease("g1", phase), lease("g2", phase)]) == {"g1": phase}


@pytest.mark.parametrize("phase", ["Free", "Quarantined"])
def test_a_scrubbed_gpu_is_waited_for_no_more(phase: str) -> None:
    assert awaited("acme", ["g1"], [lease("g1", phase)]) == {}


def test_a_gpu_that_the_next_tenant_has_was_scrubbed_in_between() -> None:
    assert awaited("acme", ["g1"], [lease("g1", "Leased", "globex")]) == {}


def test_a_gpu_that_is_no_more_is_not_waited_for() -> None:
    assert awaited("acme", ["g1"], []) == {}
