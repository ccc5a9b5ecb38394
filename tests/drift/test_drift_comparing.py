"""Declared against live objects: what a server fills in is no drift, what somebody changed is, and who."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gpuclusters.drift import comparing, resources
from tests.drift.drifting import after, before, text, view_of
from tests.fixtures.tables import beside

CASES = beside(__file__, "comparing.yaml")
BODY = CASES["declared"]


def live(**container: Any) -> dict[str, Any]:
    """As a server keeps it, and somebody changed its container."""
    body: dict[str, Any] = copy.deepcopy(CASES["live"])
    body["spec"]["template"]["spec"]["containers"][0] |= container
    return body


def lines(found: dict[str, Any]) -> list[str]:
    return [field.line for field in comparing.differing(BODY, found)]


def test_what_a_server_makes_of_an_object_is_no_drift() -> None:
    assert lines(live()) == []


@pytest.mark.parametrize(("change", "path", "said"), CASES["changes"])
def test_what_somebody_changed_is_named_by_its_path(
    change: dict[str, Any], path: str, said: str
) -> None:
    (line,) = lines(live(**change))
    assert path in line
    assert said in line


def test_saying_nothing_means_yes_for_some_fields() -> None:
    there = live()
    del there["spec"]["template"]["spec"]["automountServiceAccountToken"]
    assert lines(there) == ["spec.template.spec.automountServiceAccountToken: false is gone"]


def test_of_a_secret_only_the_keys_are_compared_and_nothing_is_shown() -> None:
    wanted = {
        "kind": "Secret",
        "stringData": {"token": "hunter2", "other": "x"},
        "metadata": {"name": "s"},
    }
    there = {"kind": "Secret", "data": {"token": "Y2hhbmdlZA=="}, "metadata": {"name": "s"}}
    found = [field.line for field in comparing.differing(wanted, there)]
    assert found == ["stringData.other: [secret] is gone"]
    shown = comparing.shown(("spec", "password"), "hunter2")
    assert shown == "[secret]"


def test_what_never_was_as_declared_is_no_drift() -> None:
    type_ = "kubernetes:apps/v1:DaemonSet"
    inputs = {**BODY, "metadata": {"name": "x", "namespace": "n", "labels": {"never": "kept"}}}
    old = {"inputs": inputs, "outputs": live()}
    view = view_of(text(before(type_, "x", old), after(type_, "x", old, old)))
    assert list(resources.findings(view)) == []
    new = {"inputs": inputs, "outputs": live(image="other")}
    view = view_of(text(before(type_, "x", old), after(type_, "x", old, new)))
    (found,) = resources.findings(view)
    assert (found.id, found.where, found.what) == ("stack.object-changed", "n", "DaemonSet x")
    assert "image" in found.found


def test_the_manager_of_a_changed_field_is_named_the_latest_first() -> None:
    image = {"f:spec": {"f:containers": {'k:{"name":"one"}': {".": {}, "f:image": {}}}}}
    kubelet = {"manager": "kubelet", "time": "", "fieldsV1": image, "subresource": "status"}
    managed = [
        {"manager": "pulumi", "time": "2026-11-01T00:00:00Z", "fieldsV1": image},
        {"manager": "kubectl-edit", "time": "2026-11-22T05:07:12Z", "fieldsV1": image},
        {"manager": "other", "time": "2026-11-22T06:00:00Z", "fieldsV1": {"f:spec": {"f:x": {}}}},
        kubelet,
    ]
    path = ("spec", "containers", "[one]", "image")
    assert (
        comparing.who({"metadata": {"managedFields": managed}}, [path])
        == "kubectl-edit (2026-11-22 05:07 UTC), pulumi (2026-11-01 00:00 UTC)"
    )
    assert comparing.who({}, [path]) == ""
