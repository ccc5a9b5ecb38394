"""Each policy rule: what it finds, and what it lets pass."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuclusters.policy.rules import RULES
from gpuclusters.policy.settings import configured
from gpuclusters.policy.stack import Stack, Subject
from tests.review.catalogue import handmade

DYNAMIC = "gpu-clusters:gpu:"
CHART = "kubernetes:helm.sh/v3:Release"
POD = "kubernetes:apps/v1:Deployment"
BOARD = f"{DYNAMIC}FabricPartitions"
ON_HOST = {"connection": handmade.connection("gpu-01")}


def found(rule: str, *subjects: Subject, settings: dict[str, Any] | None = None) -> list[str]:
    (made,) = (r for r in configured(RULES, settings or {}, "test") if r.id == rule)
    return [violation.says for violation in made.look(Stack(subjects))]


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
            Subject(BOARD, "f", {}, urn=f"urn:pulumi:eu-prod::p::{BOARD}::f"),
            Subject(BOARD, "f", {}, urn=f"urn:pulumi:eu-prod::p::{BOARD}::f", protect=True),
        ),
        (
            "partition-protect",
            Subject(BOARD, "f", {}, urn=f"urn:pulumi:prod::p::{BOARD}::f"),
            Subject(BOARD, "f", {}, urn=f"urn:pulumi:dev::p::{BOARD}::f"),
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
            "host-key",
            Subject(
                "command:remote:Command",
                "c",
                {"connection": {"host": "a", "hostKey": "k", "proxy": {"host": "b"}}},
            ),
            Subject(
                "command:remote:Command",
                "c",
                {
                    "connection": {
                        "host": "a",
                        "hostKey": "k",
                        "proxy": {"host": "b", "hostKey": "k"},
                    }
                },
            ),
        ),
        (
            "open-firewall",
            Subject(handmade.FIREWALL, "f", {"sourceRanges": ["128.0.0.0/1"], "allows": [{}]}),
            Subject(handmade.FIREWALL, "f", {"sourceRanges": ["2001:db8::/32"], "allows": [{}]}),
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


TENANTS = [Subject(f"{DYNAMIC}TenancyPolicy", name, {"tenant": name}) for name in ("a", "b")]


@pytest.mark.parametrize("how", ["timeSlicing", "mps"])
@pytest.mark.parametrize("form", ["text", "structure"])
def test_gpus_shared_in_software_are_for_one_tenant_alone(how: str, form: str) -> None:
    replicas = {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}
    stated: Any = {"sharing": {how: replicas}}
    if form == "text":
        stated = f"sharing:\n  {how}:\n    resources:\n    - replicas: 4\n"
    plugin = Subject("kubernetes:core/v1:ConfigMap", "s", {"data": {"any": stated}})
    (says,) = found("time-slicing-across-tenants", plugin, *TENANTS)
    assert says.startswith(
        f"GPUs are shared by {'MPS' if how == 'mps' else 'time'} among 2 tenants"
    )
    assert found("time-slicing-across-tenants", plugin, TENANTS[0]) == []


def cdi(name: str, *devices: tuple[str, str], **outputs: Any) -> Subject:
    listed = [{"name": number, "pci_address": address} for number, address in devices]
    props = {**ON_HOST, "kind": "nvidia.com/pgpu", "devices": listed}
    return Subject(f"{DYNAMIC}CdiSpec", name, props, outputs=outputs)


ONE, TWO = ("1", "0000:0f:00.0"), ("2", "0000:1f:00.0")


def node(name: str, group: int) -> dict[str, Any]:
    return {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/vfio/{group}"}]}}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (
            [
                cdi("c", ONE, TWO),
                Subject(
                    f"{DYNAMIC}VfioBinding",
                    "v",
                    ON_HOST,
                    outputs={"iommu_groups": {ONE[1]: 40.0, TWO[1]: "40"}},
                ),
            ],
            "nvidia.com/pgpu=1 (0000:0f:00.0) and nvidia.com/pgpu=2 (0000:1f:00.0) of gpu-01 are in one "
            "IOMMU group (group 40), and 2 tenants may get them",
        ),
        ([cdi("c", ONE), cdi("d", ("9", ONE[1]))], "(the same function)"),
        (
            [cdi("c", ONE, TWO, content=json.dumps({"devices": [node("1", 7), node("2", 7)]}))],
            "(/dev/vfio/7)",
        ),
        (
            [
                Subject(
                    f"{DYNAMIC}HostFile",
                    "f",
                    {
                        "path": "/etc/cdi/by-hand.json",
                        "content": json.dumps({"devices": [node("1", 7), node("2", 7)]}),
                    },
                )
            ],
            "of one machine are one IOMMU group",
        ),
        (
            [
                Subject(
                    f"{DYNAMIC}HostFile",
                    "f",
                    {
                        "path": "/var/run/cdi/by-hand.yaml",
                        "content": "devices:\n"
                        "- {name: a, containerEdits: {deviceNodes: [{path: /dev/vfio/7}]}}\n"
                        "- {name: b, containerEdits: {deviceNodes: [{path: /dev/vfio/7}]}}\n",
                    },
                )
            ],
            "the CDI devices a and b of one machine are one IOMMU group",
        ),
        (
            [cdi("c", ONE), Subject(f"{DYNAMIC}ServiceVm", "s", {**ON_HOST, "switches": [ONE[1]]})],
            "the service VM of gpu-01 holds 0000:0f:00.0, which tenants get as nvidia.com/pgpu=1",
        ),
        (
            [
                Subject(
                    f"{DYNAMIC}HostBoot",
                    "b",
                    {**ON_HOST, "kernel_arguments": ["iommu=pt", "pcie_acs_override=downstream"]},
                )
            ],
            "pcie_acs_override=downstream makes IOMMU groups of gpu-01 look apart",
        ),
    ],
)
def test_gpus_that_the_iommu_cannot_keep_apart_are_for_one_tenant_alone(
    bad: list[Subject], says: str
) -> None:
    (told,) = found("shared-iommu-group", *bad, *TENANTS)
    assert says in told
    assert found("shared-iommu-group", *bad, TENANTS[0]) == []


def test_gpus_in_groups_of_their_own_are_fine_for_any_number_of_tenants() -> None:
    groups = {"iommu_groups": {ONE[1]: "40", TWO[1]: "41"}}
    content = json.dumps({"devices": [node("1", 40), node("2", 41)]})
    apart = [
        cdi("c", ONE, TWO, content=content),
        Subject(f"{DYNAMIC}VfioBinding", "v", ON_HOST, outputs=groups),
        Subject(f"{DYNAMIC}ServiceVm", "s", {**ON_HOST, "switches": ["0000:85:00.0"]}),
    ]
    assert found("shared-iommu-group", *apart, *TENANTS) == []


def test_what_can_be_set_of_a_rule_counts() -> None:
    pod = Subject(POD, "p", image("registry:5000/x:1.2"))
    assert found("unpinned", pod) == []
    assert found("unpinned", pod, settings={"unpinned": {"digests": True}}) == [
        "the image registry:5000/x:1.2 (spec.template.spec.containers) has no digest"
    ]
    allowed = {"open-firewall": {"allowed": ["10.0.0.0/8", "0.0.0.0/1"]}}
    inside = Subject(handmade.FIREWALL, "f", {"sourceRanges": ["10.1.0.0/16"], "allows": [{}]})
    beside = Subject(handmade.FIREWALL, "f", {"sourceRanges": ["192.0.2.0/24"], "allows": [{}]})
    assert found("open-firewall", inside, settings=allowed) == []
    assert len(found("open-firewall", beside, settings=allowed)) == 1
