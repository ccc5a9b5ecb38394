"""Which GPUs a tenancy that is being deleted waits for."""

from typing import Any

import pytest

from gpuclusters.lease.model import awaited, held_by


def lease(name: str, phase: str, tenant: str | None = None, last: str = "") -> dict[str, Any]:
    status: dict[str, Any] = {"phase": phase}
    if tenant:
        status["holder"] = {"tenant": tenant}
    if last:
        status["lastTenant"] = last
    return {"metadata": {"name": name}, "status": status}


@pytest.mark.parametrize("phase", ["Reserved", "Activating", "Leased", "Releasing"])
def test_what_the_tenant_holds_is_waited_for(phase: str) -> None:
    assert awaited("acme", [lease("g1", phase, "acme")]) == {"g1": phase}
    assert held_by("acme", [lease("g1", phase, "acme")]) == [f"g1 ({phase})"]


@pytest.mark.parametrize("phase", ["Resetting", "Scrubbing", "Verifying"])
def test_what_the_tenant_had_last_is_waited_for_until_it_is_scrubbed(phase: str) -> None:
    leases = [
        lease("g1", phase, last="acme"),
        lease("g2", phase, last="globex"),
        lease("g3", phase),
    ]
    assert awaited("acme", leases) == {"g1": phase}
    assert held_by("acme", leases) == []


def test_a_free_gpu_is_waited_for_no_more() -> None:
    assert awaited("acme", [lease("g1", "Free")]) == {}


def test_a_gpu_in_quarantine_is_not_waited_for_whoever_had_it() -> None:
    assert awaited("acme", [lease("g1", "Quarantined", last="acme")]) == {}
    assert awaited("acme", [lease("g1", "Quarantined", "acme", last="acme")]) == {}


def test_a_gpu_that_the_next_tenant_has_was_scrubbed_in_between() -> None:
    assert awaited("acme", [lease("g1", "Leased", "globex")]) == {}


def test_a_gpu_that_is_no_more_is_not_waited_for() -> None:
    assert awaited("acme", []) == {}
