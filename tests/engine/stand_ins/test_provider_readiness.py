from __future__ import annotations

import pytest

from engine.stand_ins.kubernetes.readiness import Surroundings, progress
from engine.stand_ins.kubernetes.waiting import timeout_seconds, what_holds
from tests.fixtures.tables import beside


def obj(kind, spec=None, status=None, **metadata):
    """An object; `kind` is the API version and the kind, conditions stand by their type."""
    api_version, name = kind.split()
    status = dict(status or {})
    if "conditions" in status:
        default = {"status": "True", "reason": "R", "message": "m"}
        named = status["conditions"].items()
        status["conditions"] = [{"type": one, **default, **said} for one, said in named]
    return {
        "apiVersion": api_version,
        "kind": name,
        "metadata": {"name": "x", "generation": 1, **metadata},
        "spec": spec or {},
        "status": status,
    }


def made(row):
    return obj(row["kind"], row.get("spec"), row.get("status"), **row.get("metadata", {}))


TABLE = beside(__file__, "readiness.yaml")


@pytest.mark.parametrize("row", TABLE["ready"], ids=lambda row: row["kind"])
def test_an_object_is_ready(row) -> None:
    assert progress(made(row)).ready


@pytest.mark.parametrize(("why", "row"), TABLE["not yet"])
def test_an_object_is_still_on_its_way_and_says_why(why, row) -> None:
    found = progress(made(row))
    assert not found.ready
    assert not found.failed
    assert why in found.message


@pytest.mark.parametrize(("why", "row"), TABLE["failed"])
def test_an_object_that_has_failed_is_not_waited_for(why, row) -> None:
    found = progress(made(row))
    assert found.failed
    assert why in found.message


def test_a_service_is_ready_with_one_ready_endpoint() -> None:
    service = obj("v1 Service", {"clusterIP": "10.0.0.1", "selector": {"app": "x"}})
    unready = {"endpoints": [{"conditions": {"ready": False}}]}
    ready = {"endpoints": [{"conditions": {"ready": True}}]}
    assert not progress(service, Surroundings(endpoint_slices=[unready])).ready
    assert progress(service, Surroundings(endpoint_slices=[unready, ready])).ready


def test_a_claim_that_binds_with_its_first_pod_is_not_waited_for() -> None:
    claim = obj("v1 PersistentVolumeClaim", status={"phase": "Pending"})
    late = Surroundings(storage_class={"volumeBindingMode": "WaitForFirstConsumer"})
    assert progress(claim, late).ready


@pytest.mark.parametrize(
    ("call", "text", "expected"), [(5, "9", 5), (0, "9", 9), (0, "", 600), (0, "x", 600)]
)
def test_the_wait_is_as_long_as_the_resource_says(call, text, expected) -> None:
    annotations = {"pulumi.com/timeoutSeconds": text}
    assert timeout_seconds(call, {"metadata": {"annotations": annotations}}) == expected


def test_a_namespace_says_what_keeps_it() -> None:
    held = {"NamespaceFinalizersRemaining": {"message": "finalizers remaining: x in 1 resource"}}
    seen = obj("v1 Namespace", status={"conditions": held}, finalizers=["y"])
    assert what_holds(seen) == "finalizers remaining: x in 1 resource"
    assert "finalizers y" in what_holds(obj("v1 ConfigMap", finalizers=["y"]))
