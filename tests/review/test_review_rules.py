"""Each policy rule: what it finds, and what it lets pass."""

from __future__ import annotations

from typing import Any

import pytest

from gpuclusters.review.findings import Severity, Subject, findings, with_severities
from gpuclusters.review.rules import RULES
from tests.review.catalogue import handmade
from tests.review.reviewing import plan, reviewed

DYNAMIC = "pulumi-python:dynamic/gpu:"
CHART = "kubernetes:helm.sh/v3:Release"
POD = "kubernetes:apps/v1:Deployment"
ON_HOST = {"connection": handmade.connection("gpu-01")}


def found(rule: str, *subjects: Subject) -> list[str]:
    check = next(r.check for r in RULES if r.id == rule)
    return [violation.says for violation in check(subjects)]


def image(name: str) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": name}]}}}}


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        (
            "unpinned",
            Subject(CHART, "c", {"chart": "gpu-operator"}),
            Subject(CHART, "c", {"chart": "x", "version": "v26.3.0"}),
        ),
        (
            "unpinned",
            Subject(CHART, "c", {"chart": "x", "version": ">=1"}),
            Subject(CHART, "c", {"chart": "./x-1.tgz"}),
        ),
        (
            "unpinned",
            Subject(POD, "p", image("registry/x")),
            Subject(POD, "p", image("registry:5000/x:1.2")),
        ),
        (
            "unpinned",
            Subject(POD, "p", image("x:latest")),
            Subject(POD, "p", image("x@sha256:" + "0" * 64)),
        ),
        (
            "unpinned",
            Subject(f"{DYNAMIC}GpuDriver", "d", {"version": None}),
            Subject(f"{DYNAMIC}GpuDriver", "d", {"version": None, "source": "operator"}),
        ),
        (
            "partition-protect",
            Subject(f"{DYNAMIC}FabricPartitions", "f", {}),
            Subject(f"{DYNAMIC}FabricPartitions", "f", {}, protect=True),
        ),
        (
            "host-key",
            Subject(f"{DYNAMIC}HostFile", "f", {"connection": {"host": "a"}}),
            Subject(f"{DYNAMIC}HostFile", "f", ON_HOST),
        ),
        (
            "host-key",
            Subject("command:remote:Command", "c", {"connection": {"host": "a"}}),
            Subject("command:remote:Command", "c", {"connection": "[secret]"}),
        ),
        (
            "open-firewall",
            Subject(handmade.FIREWALL, "f", {"sourceRanges": ["::/0"], "allows": [{}]}),
            Subject(handmade.FIREWALL, "f", {"sourceRanges": ["10.0.0.0/8"], "allows": [{}]}),
        ),
        (
            "open-firewall",
            Subject(handmade.FIREWALL, "f", {"allows": [{}]}),
            Subject(handmade.FIREWALL, "f", {"allows": [{}], "direction": "EGRESS"}),
        ),
        (
            "spot-control-plane",
            Subject(f"{DYNAMIC}GcpMachine", "rke2-server-0", {"provisioning": "spot"}),
            Subject(f"{DYNAMIC}GcpMachine", "gpu-0", {"provisioning": "spot"}),
        ),
        (
            "stateful-delete",
            Subject("gcp:compute/disk:Disk", "d", {}, deleted=True),
            Subject("gcp:compute/disk:Disk", "d", {}),
        ),
    ],
)
def test_a_rule_finds_what_it_is_about_and_nothing_else(
    rule: str, bad: Subject, good: Subject
) -> None:
    assert len(found(rule, bad)) == 1
    assert found(rule, good) == []


def test_a_driver_on_a_machine_that_passes_its_gpus_to_vms_is_found() -> None:
    passed = Subject(f"{DYNAMIC}VfioBinding", "v", ON_HOST)
    driver = Subject(f"{DYNAMIC}GpuDriver", "d", {**ON_HOST, "version": "1"})
    packages = Subject(
        "command:remote:Command", "c", {"create": "apt-get install -y nvidia-driver-580-server"}
    )
    harmless = Subject(
        "command:remote:Command", "c", {"create": "apt-get install -y qemu-system-x86"}
    )
    rule = "host-driver-on-passthrough"
    assert len(found(rule, passed, driver, packages)) == 2
    assert found(rule, driver, packages) == []
    assert found(rule, passed, harmless) == []


def test_time_slicing_is_fine_while_nobody_else_is_there() -> None:
    slices = Subject(
        "kubernetes:core/v1:ConfigMap",
        "s",
        {"data": {"any": "sharing:\n timeSlicing:\n  replicas: 4"}},
    )
    tenants = [Subject(f"{DYNAMIC}TenancyPolicy", name, {"tenant": name}) for name in ("a", "b")]
    assert found("time-slicing-across-tenants", slices, tenants[0]) == []
    assert len(found("time-slicing-across-tenants", slices, *tenants)) == 1


def test_what_was_there_before_is_told_apart_from_what_is_new() -> None:
    board = f"{DYNAMIC}FabricPartitions"
    made = plan(handmade.same(board, "old", {}), handmade.step("create", board, "new", None, {}))
    assert [(f.name, f.new) for f in findings(made, RULES)] == [("new", True), ("old", False)]
    off = with_severities(RULES, {"partition-protect": Severity.OFF})
    assert findings(made, off) == ()


def test_a_mandatory_finding_makes_a_change_dangerous() -> None:
    rule = {"sourceRanges": ["0.0.0.0/0"], "allows": [{"protocol": "tcp"}]}
    judged = reviewed(handmade.step("create", handmade.FIREWALL, "f", None, rule))
    assert judged.level.words == "dangerous"


def test_a_machine_that_looks_for_its_zone_is_counted_and_priced() -> None:
    machine = {
        "name": "v100-0",
        "zones": ["us-central1-a", "us-west1-b"],
        "machine_type": "n1-standard-8",
        "gpus": 1,
        "accelerator": {"type": "nvidia-tesla-v100", "count": 1},
        "disk": {"size_gib": 100},
    }
    judged = reviewed(
        handmade.step("create", "gpu-clusters:gcp:Pool", "pool", None, {}),
        handmade.step(
            "create",
            f"{DYNAMIC}GcpMachine",
            "v100-0",
            None,
            machine,
            parent=("gpu-clusters:gcp:Pool", "pool"),
        ),
    )
    assert judged.cost.after.known == pytest.approx(
        8 * 0.031611 + 30 * 0.004237 + 2.48 + 100 * 0.10 / 730
    )
    assert judged.cost.after.unknown == ()
    (capacity,) = judged.capacities
    assert [(row.what, row.after) for row in capacity.rows] == [("machines", 1), ("GPUs", 1)]


def test_another_mig_layout_needs_the_gpus_free() -> None:
    old = {"cluster": "a100", "node": "gpu-01", "layout": "all-disabled", "evict": False}
    judged = reviewed(
        *handmade.rke2(),
        handmade.step(
            "update",
            f"{DYNAMIC}MigLayout",
            "m",
            old,
            {**old, "layout": "all-1g.10gb"},
            parent=handmade.GPU_STACK,
        ),
    )
    (impact,) = judged.impacts
    assert (impact.machine, impact.gpus) == ("gpu-01", 8)
    assert "from all-disabled to all-1g.10gb" in impact.says
