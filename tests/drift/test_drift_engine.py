"""What the engine's events tell: both sides of a refresh, what could not be read, what `up` would do.

How what drifted is called stands in words.yaml."""

from __future__ import annotations

from typing import Any

import pytest

from gpuclusters.drift import engine, resources
from gpuclusters.drift.report import Finding
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
from tests.fixtures.tables import beside

WORDS = beside(__file__, "words.yaml")
CDI = f"{DYNAMIC}CdiSpec"
INPUTS = {"connection": CONNECTION, "path": "/etc/cdi/a.json", "kind": "x", "devices": []}
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
    assert (found.id, found.where) == ("cdi.devices-changed", "hgx-01")
    assert (found.what, found.up) == ("/etc/cdi/a.json", True)


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
    said = error("error: the passphrase is wrong, token: abcdefghijklmnopqrst")
    view = view_of(text(said, summary("failed")))
    assert view.failure.startswith("the passphrase is wrong")
    assert "abcdefghijklmnopqrst" not in view.failure


def test_a_secret_is_masked_before_anything_is_compared() -> None:
    drift = {
        "code": "host.file-changed",
        "problem": "/etc/x differs",
        "path": [],
        "level": "repair",
    }
    old = state({"connection": CONNECTION, "path": "/etc/x", "content": "a"}, {})
    new = state({**old["inputs"], "content": "password: hunter22hunter22"}, {"drift": [drift]})
    type_ = f"{DYNAMIC}HostFile"
    view = view_of(text(before(type_, "x", old), after(type_, "x", old, new)))
    (found,) = resources.findings(view)
    assert (found.id, len(found.details)) == ("host.file-changed", 1)
    assert "hunter22" not in repr(found)


def findings(kind: str, old: Any, new: Any, **inputs: Any) -> list[Finding]:
    declared = {"connection": CONNECTION, **inputs}
    return list(resources.findings(view_of(resource(kind, "x", declared, old, new))))


@pytest.mark.parametrize("said", WORDS)
def test_what_drifted_has_a_name(said: str) -> None:
    case = WORDS[said]
    found = findings(case["kind"], case["old"], case["new"], **case.get("inputs", {}))
    assert len(found) == len(case["told"])
    for one, told in zip(found, case["told"], strict=True):
        assert {field: getattr(one, field) for field in told} == told


def test_what_stops_up_is_not_said_to_be_put_back() -> None:
    drift = {"code": "rke2.firewalld", "problem": "firewalld runs", "path": [], "level": "block"}
    (one,) = findings("Rke2Node", {"drift": []}, {"drift": [drift]})
    assert one.id == "rke2.firewalld"
    assert "up --refresh" not in one.remedy
