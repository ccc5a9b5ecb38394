"""Declared against live objects: what a server fills in is no drift, what somebody changed is, and who."""

from __future__ import annotations

from typing import Any

import pytest

from gpuclusters.drift import comparing, resources
from tests.drift.drifting import after, before, text, view_of

BODY: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "x", "labels": {"a": "b"}},
    "spec": {
        "replicas": 0,
        "template": {
            "spec": {
                "automountServiceAccountToken": False,
                "hostNetwork": False,
                "nodeSelector": {},
                "containers": [
                    {
                        "name": "one",
                        "image": "i@sha256:1",
                        "args": ["--a", "--b"],
                        "env": [{"name": "A", "value": "1"}],
                        "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}},
                        "ports": [{"containerPort": 80.0}],
                    }
                ],
            }
        },
    },
}


def live(**containers: Any) -> dict[str, Any]:
    """As a server keeps it: quantities in its own way, empty fields dropped, defaults and a status added."""
    container = {
        "name": "one",
        "image": "i@sha256:1",
        "args": ["--a", "--b"],
        "env": [{"name": "A", "value": "1"}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "terminationMessagePath": "/dev/termination-log",
        **containers,
    }
    spec = {
        "automountServiceAccountToken": False,
        "containers": [container],
        "dnsPolicy": "ClusterFirst",
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "x", "uid": "1", "labels": {"a": "b", "c": "d"}},
        "spec": {"template": {"spec": spec}},
        "status": {"numberReady": 3},
    }


def lines(found: dict[str, Any]) -> list[str]:
    return [field.line for field in comparing.differing(BODY, found)]


def test_what_a_server_makes_of_an_object_is_no_drift() -> None:
    assert lines(live()) == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"image": "i:latest"}, "containers[one].image: i:latest instead of i@sha256:1"),
        ({"env": [{"name": "A", "value": "2"}]}, "env[A].value: 2 instead of 1"),
        ({"env": []}, "env: is gone"),
        ({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "x"}]}, "env[B]: "),
        ({"args": ["--a"]}, 'args: ["--a"] instead of'),
        (
            {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}},
            "limits.cpu: 2 instead of 1000m",
        ),
    ],
)
def test_what_somebody_changed_is_named_by_its_path(change: dict[str, Any], line: str) -> None:
    found = lines(live(**change))
    assert len(found) == 1
    assert line.split(": ")[0] in found[0]
    assert line.split(": ")[1] in found[0]


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


def managed(*entries: tuple[str, str, dict[str, Any]], subresource: str = "") -> dict[str, Any]:
    fields = [
        {"manager": manager, "time": time, "fieldsV1": owned, "subresource": subresource}
        for manager, time, owned in entries
    ]
    return {"metadata": {"managedFields": fields}}


def test_the_manager_of_a_changed_field_is_named_the_latest_first() -> None:
    image: dict[str, Any] = {
        "f:spec": {"f:containers": {'k:{"name":"one"}': {".": {}, "f:image": {}}}}
    }
    path = ("spec", "containers", "[one]", "image")
    body = managed(
        ("pulumi", "2026-11-01T00:00:00Z", image),
        ("kubectl-edit", "2026-11-22T05:07:12Z", image),
        ("other", "2026-11-22T06:00:00Z", {"f:spec": {"f:replicas": {}}}),
    )
    assert (
        comparing.who(body, [path])
        == "kubectl-edit (2026-11-22 05:07 UTC), pulumi (2026-11-01 00:00 UTC)"
    )
    assert comparing.who(managed(("kubelet", "", image), subresource="status"), [path]) == ""
    assert comparing.who({}, [path]) == ""
