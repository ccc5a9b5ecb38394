"""What the engine's events tell: both sides of a refresh, what could not be read, what `up` would do."""

from __future__ import annotations

import pytest

from gpuclusters.drift import engine, resources
from gpuclusters.review.plan import Action
from tests.drift.drifting import (
    CONNECTION,
    DYNAMIC,
    after,
    before,
    error,
    resource,
    state,
    step,
    summary,
    text,
    urn,
    view_of,
)

CDI = f"{DYNAMIC}CdiSpec"
INPUTS = {
    "connection": CONNECTION,
    "path": "/etc/cdi/a.json",
    "kind": "nvidia.com/pgpu",
    "devices": [],
}
OLD = state(INPUTS, {"drift": []})
CHANGED = {
    "code": "cdi.devices-changed",
    "problem": "/etc/cdi/a.json has another kind or other devices",
    "path": ["/etc/cdi/a.json"],
    "level": "repair",
}
NEW = state(INPUTS, {"drift": [CHANGED]})


def test_a_refresh_is_read_with_both_sides_and_the_plan() -> None:
    view = view_of(
        text(
            before(CDI, "a", OLD),
            after(CDI, "a", OLD, NEW),
            step("update", CDI, "a"),
            after(CDI, "a", NEW, OLD, op="update"),
            step("same", CDI, "b"),
            summary(),
        )
    )
    assert view.planned
    assert view.plan == {urn(CDI, "a"): Action.UPDATE}
    (found,) = resources.findings(view)
    assert (found.id, found.where, found.what, found.up) == (
        "cdi.devices-changed", "hgx-01", "/etc/cdi/a.json", True,
    )  # fmt: skip


def test_what_is_gone_is_told_and_what_up_leaves_alone_is_not_said_to_be_mended() -> None:
    view = view_of(resource("CdiSpec", "a", INPUTS, {"drift": []}, None) + text(summary()))
    (found,) = resources.findings(view)
    assert (found.id, found.up) == ("cdi.missing", False)


def test_a_resource_that_could_not_be_read_is_unread_and_the_others_are_seen() -> None:
    said = "hgx-02 (192.0.2.2:22): could not read: no SSH connection"
    events = text(
        before(CDI, "a", OLD),
        before(CDI, "b", OLD),
        after(CDI, "a", OLD, NEW),
        error(f"Preview failed: {said}\n", CDI, "b"),
        error("preview failed"),
        summary("failed"),
    )
    view = view_of(events)
    assert view.unread == {urn(CDI, "b"): said}
    assert set(view.resources) == {urn(CDI, "a")}
    assert not view.planned
    assert [found.up for found in resources.findings(view)] == [None]
    second = view_of(
        text(before(CDI, "a", OLD), after(CDI, "a", OLD, NEW), step("update", CDI, "a"), summary())
    )
    both = engine.merged(view, second)
    assert both.unread == view.unread
    assert [found.up for found in resources.findings(both)] == [True]
    assert engine.merged(view, view) == view


@pytest.mark.parametrize(
    "cut", [text(before(CDI, "a", OLD)), text(before(CDI, "a", OLD)) + '{"resOutputsEv']
)
def test_events_that_end_in_the_middle_are_no_plan(cut: str) -> None:
    view = view_of(cut)
    assert not view.planned
    assert view.failure == "the engine was interrupted"
    assert list(view.states) == [urn(CDI, "a")]


def test_an_engine_that_says_nothing_is_an_error_and_its_failure_is_told() -> None:
    with pytest.raises(engine.EventsError):
        view_of("error: no stack named prod\n")
    view = view_of(
        text(
            error("error: the passphrase is wrong, token: abcdefghijklmnopqrst"), summary("failed")
        )
    )
    assert view.failure.startswith("the passphrase is wrong")
    assert "abcdefghijklmnopqrst" not in view.failure


def test_a_secret_is_masked_before_anything_is_compared() -> None:
    inputs = {"connection": CONNECTION, "path": "/etc/x", "content": "a"}
    old = state(inputs, {})
    drift = {
        "code": "host.file-changed",
        "problem": "/etc/x differs",
        "path": ["/etc/x"],
        "level": "repair",
    }
    new = state({**inputs, "content": "password: hunter22hunter22"}, {"drift": [drift]})
    view = view_of(
        text(before(f"{DYNAMIC}HostFile", "x", old), after(f"{DYNAMIC}HostFile", "x", old, new))
    )
    (found,) = resources.findings(view)
    assert (found.id, len(found.details)) == ("host.file-changed", 1)
    assert "hunter22" not in repr(found)
