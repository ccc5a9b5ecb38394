"""What is told of a tenancy whose readiness changes."""

from typing import Any

from gpuclusters.tenancy.proof import News, news, not_ready


def tenancy(*conditions: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "acme", **metadata}, "status": {"conditions": list(conditions)}}


READY = {"type": "Ready", "status": "True", "reason": "Enforced", "message": ""}
UNREADY = not_ready("Missing", "quota: ResourceQuota tenant does not exist", 1)
OTHER = not_ready("Differs", "quota: it says something else", 1)


def test_becoming_ready_is_told_once() -> None:
    told = News("Ready", "everything that isolates the tenant is enforced", "Normal")
    assert news(tenancy(), tenancy(READY)) == told
    assert news(tenancy(UNREADY), tenancy(READY)) == told
    assert news(tenancy(READY), tenancy(READY)) is None


def test_what_is_missing_is_told_with_the_change_and_not_with_another_reason() -> None:
    told = News("NotReady", "Missing: quota: ResourceQuota tenant does not exist", "Warning")
    assert news(tenancy(READY), tenancy(UNREADY)) == told
    assert news({"metadata": {"name": "acme"}}, tenancy(UNREADY)) == told
    assert news(tenancy(UNREADY), tenancy(OTHER)) is None


def test_a_tenancy_that_is_to_end_warns_nobody() -> None:
    ending = tenancy(UNREADY, deletionTimestamp="2026-11-21T00:00:00Z")
    told = news(tenancy(READY), ending)
    assert told
    assert told.kind == "Normal"


def test_a_status_without_readiness_tells_nothing() -> None:
    assert news(tenancy(READY), tenancy()) is None
