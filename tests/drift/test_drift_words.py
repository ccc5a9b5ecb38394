"""What resources tell of drift, and how it is named."""

from __future__ import annotations

import re
from typing import Any

from gpuclusters.drift import resources
from tests.drift.drifting import CONNECTION, resource, view_of

ON_HOST = {"connection": CONNECTION}


def found(
    kind: str, inputs: dict[str, Any], old: dict[str, Any], new: dict[str, Any] | None
) -> list[Any]:
    view = view_of(resource(kind, "x", {**ON_HOST, **inputs}, old, new))
    return list(resources.findings(view))


def test_partitions_that_are_missing_or_foreign_are_named_by_their_number() -> None:
    inputs = {"board": "board-0", "partitions": [1.0, 5.0, 12.0]}
    old = {"active": [1.0, 5.0, 12.0], "applied": [1.0, 5.0, 12.0], "warnings": []}
    ones = found(
        "FabricPartitions",
        inputs,
        old,
        {"active": [1.0, 11.0, 12.0], "warnings": ["link 3 is down"]},
    )
    assert [(one.id, one.what) for one in ones] == [
        ("fabric.partition-inactive", "partition 5 of board-0"),
        ("fabric.partition-foreign", "partition 11 of board-0"),
        ("fabric.warning", "board-0"),
    ]
    assert found("FabricPartitions", inputs, old, {}) == []


def test_the_fabric_manager_is_told_apart_restarted_silent_and_of_another_version() -> None:
    inputs = {"name": "fabric-manager", "fabric_manager": {"version": "580.1"}}
    old = {"state": "ready", "run": "boot/2", "drift": [], "fabric_manager_version": "580.1"}
    assert [o.id for o in found("ServiceVm", inputs, old, {"run": "boot/3"})] == [
        "fabric.manager-restarted"
    ]
    assert [
        o.id
        for o in found("ServiceVm", inputs, old, {"state": "waiting-for-list", "run": "boot/3"})
    ] == ["fabric.manager-not-ready"]
    drift = {"code": "service-vm.version", "problem": "it is 570.9", "path": [], "level": "block"}
    assert [o.id for o in found("ServiceVm", inputs, old, {"drift": [drift]})] == [
        "service-vm.version"
    ]
    assert [o.id for o in found("ServiceVm", inputs, old, None)] == ["service-vm.missing"]


def test_a_mig_layout_and_the_findings_of_a_preflight() -> None:
    inputs = {"node": "gpu-02", "layout": "all-1g.10gb"}
    cut = {"code": "mig.layout-changed", "problem": "its GPUs are whole", "level": "repair"}
    (one,) = found("MigLayout", inputs, {"drift": []}, {"drift": [{**cut, "path": []}]})
    assert (one.id, one.where, one.declared, one.found) == (
        "mig.layout-changed", "gpu-02", "all-1g.10gb", "its GPUs are whole",
    )  # fmt: skip
    loaded = {"code": "preflight.driver-loaded", "problem": "nvidia is loaded; expected none"}
    (two,) = found("Preflight", {}, {"findings": []}, {"findings": [loaded]})
    assert (two.id, two.found) == ("driver.installed", "nvidia is loaded; expected none")
    assert "reboot" in two.do


def test_of_a_fleet_is_told_what_no_prepared_machine_tells() -> None:
    held = {"code": "preflight.gpus-in-use", "problem": "held open by python3 (7)"}
    loaded = {"code": "preflight.driver-loaded", "problem": "nvidia is loaded"}
    found_now = {"hgx-01": [loaded], "hgx-02": [loaded, held]}
    (one,) = found("FleetPreflight", {}, {"findings": {}}, {"findings": found_now})
    assert (one.where, one.what) == ("hgx-02", "preflight.gpus-in-use")
    assert one.found == "held open by python3 (7)"


def test_a_finding_of_a_provider_keeps_its_code() -> None:
    drift = {
        "code": "vfio.unbound",
        "problem": "0000:86:00.0 is on no driver",
        "path": ["0000:86:00.0"],
        "level": "repair",
    }
    (one,) = found("VfioBinding", {}, {"drift": []}, {"drift": [drift]})
    assert (one.id, one.where, one.what) == ("vfio.unbound", "hgx-01", "0000:86:00.0")
    assert one.found == "0000:86:00.0 is on no driver"
    assert "hgx-01" in one.remedy
    (gone,) = found("VfioBinding", {}, {"drift": []}, None)
    assert (gone.id, gone.what) == ("vfio.missing", "x")


def test_what_stops_up_is_not_said_to_be_put_back() -> None:
    drift = {"code": "rke2.firewalld", "problem": "firewalld runs", "path": [], "level": "block"}
    view = view_of(resource("Rke2Node", "x", ON_HOST, {"drift": []}, {"drift": [drift]}))
    (one,) = resources.findings(view)
    assert one.id == "rke2.firewalld"
    assert "up --refresh" not in one.remedy


def test_a_resource_that_nobody_knows_still_tells_that_it_drifted() -> None:
    (one,) = found("Rootless", {}, {"drift": []}, {"drift": ["the daemon is stopped"]})
    assert (one.id, one.where, one.found) == (
        "stack.resource-changed",
        "hgx-01",
        "the daemon is stopped",
    )
    (gone,) = found("Rootless", {}, {"drift": []}, None)
    assert gone.id == "stack.resource-missing"
    assert re.fullmatch(r"Rootless x", gone.what)
