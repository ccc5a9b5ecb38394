"""Machines on Google Cloud in the configuration: what is refused, and what to write instead."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

import pytest
from pydantic import ValidationError

from gpuclusters.compat import gpu_products
from gpuclusters.config import gcp_rules
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.gcp import machine_types
from tests.unit.config.documents import lines

RANGES = {
    "pod-cidr": IPv4Network("10.244.0.0/16"),
    "service-cidr": IPv4Network("10.96.0.0/16"),
    "node-subnets": IPv4Network("10.100.0.0/16"),
}
CONTROL = {
    "name": "control",
    "role": "controller",
    "machines": ["cp-1"],
    "machine-type": "n1-standard-4",
}
GPUS = {
    "name": "gpus",
    "role": "worker",
    "machines": ["gpu-1", "gpu-2"],
    "machine-type": "n1-standard-8",
    "gpu": {"product": "v100-sxm2-16gb", "count": 1},
}
GOOD: dict[str, Any] = {
    "source": "gcp",
    "project": "my-project",
    "zones": ["us-central1-a", "us-central1-c"],
    "image": {"source": "image", "name": "ubuntu-2404-noble-amd64-v20260812"},
    "network": {"source": "own", "cidr": "10.10.0.0/18"},
    "access": {"source": "iap"},
    "authorized-keys": [
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
    ],
    "groups": [CONTROL, GPUS],
}


def hosts(**changes: Any) -> GcpHosts:
    return GcpHosts.model_validate(GOOD | changes)


def gpus(**changes: Any) -> dict[str, Any]:
    return {"groups": [CONTROL, GPUS | changes]}


def said(section: GcpHosts) -> list[str]:
    wrong = gcp_rules.check(section, cluster="lab", ranges=RANGES)
    return lines(one.at({"hosts": section}, ("hosts",)) for one in wrong)


def test_a_right_section_has_no_flaw() -> None:
    assert said(hosts()) == []
    assert hosts().machines == ("cp-1", "gpu-1", "gpu-2")
    made = hosts()
    assert made.group_of("gpu-2") is made.groups[1]
    assert made.group_of("gpu-3") is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            gpus(**{"machine-type": "n1-standard-16"}),
            "hosts.groups[1].machine-type: has 16 vCPUs and 60 GiB, and with 1 v100-sxm2-16gb 12 and 78 are"
            ' the most (got "n1-standard-16"); write a smaller machine type, or 2 GPUs',
            id="more processors than the GPUs allow",
        ),
        pytest.param(
            gpus(**{"machine-type": "custom-12-80128"}),
            "is not a machine type that is known here",
            id="a custom machine type with too much memory for its processors",
        ),
        pytest.param(
            gpus(gpu={"product": "v100-sxm2-16gb", "count": 3}),
            "hosts.groups[1].gpu.count: is not a number of v100-sxm2-16gb that a machine can have (got 3);"
            " write 1, 2, 4 or 8",
            id="a number of GPUs that is not sold",
        ),
        pytest.param(
            gpus(**{"machine-type": "e2-standard-8"}),
            "hosts.groups[1].machine-type: cannot be given GPUs: v100-sxm2-16gb goes with N1 machines alone"
            ' (got "e2-standard-8"); write one like n1-standard-8, or custom-12-79872',
            id="a GPU on a machine that takes none",
        ),
        pytest.param(
            gpus(gpu={"product": "a100-sxm4-40gb", "count": 2}),
            "hosts.groups[1].machine-type: cannot be given a100-sxm4-40gb, which comes with machine types of"
            ' its own (got "n1-standard-8"); write a2-highgpu-2g',
            id="a GPU that is built in elsewhere",
        ),
        pytest.param(
            gpus(**{"machine-type": "a2-highgpu-2g", "gpu": {"product": "a100-sxm4-40gb", "count": 1}}),
            "hosts.groups[1].gpu: is not what a2-highgpu-2g comes with (got 1 a100-sxm4-40gb);"
            " write {product: a100-sxm4-40gb, count: 2}, or another machine type",
            id="another number of GPUs than built in",
        ),
        pytest.param(
            {"groups": [CONTROL, {k: v for k, v in GPUS.items() if k != "gpu"}
                        | {"machine-type": "a2-ultragpu-1g"}]},
            "hosts.groups[1].gpu: is missing, and a2-ultragpu-1g comes with 1 a100-sxm4-80gb (got nothing);"
            " write {product: a100-sxm4-80gb, count: 1}, which says what is paid for",
            id="built-in GPUs that are not named",
        ),
        pytest.param(
            {"zones": ["us-east1-b", "us-east1-d"]},
            "hosts.zones: has us-east1-d without v100-sxm2-16gb, which the group gpus has"
            ' (as of 2026-11-20) (got "us-east1-b", "us-east1-d"); write us-east1-b or us-east1-c',
            id="a zone without the GPU",
        ),
        pytest.param(
            {"zones": ["us-west4-b"]},
            "write zones of asia-east1, europe-west4, us-central1, us-east1 or us-west1",
            id="a region without the GPU",
        ),
        pytest.param(
            {"zones": ["us-central1-a", "us-east1-b"]},
            "hosts.zones[1]: is in another region than us-central1-a: a subnet, and so a cluster, has one"
            ' (got "us-east1-b"); write zones of us-central1, or a second cluster',
            id="zones of two regions",
        ),
        pytest.param(
            {"zones": ["us-central1-a", "us-central1-a"]},
            'hosts.zones[1]: stands there twice (got "us-central1-a"); remove one of them',
            id="a zone twice",
        ),
        pytest.param(
            {"groups": [CONTROL | {"provisioning": "spot"}, GPUS]},
            "hosts.groups[0].provisioning: lets Google take the control plane back at any time, and the"
            ' cluster with it (got "spot"); write standard; workers may be spot',
            id="a control plane that can be taken back",
        ),
        pytest.param(
            gpus(**{"machine-type": "a3-highgpu-1g", "gpu": {"product": "h100-sxm5-80gb", "count": 1}}),
            'hosts.groups[1].provisioning: is not how a3-highgpu-1g is sold (got "standard"); write spot,'
            " or a larger machine type (flex-start is sold too, which this program does not ask for)",
            id="a part of a machine that is sold as spot alone",
        ),
        pytest.param(
            gpus(disk={"size-gib": 60}),
            "hosts.groups[1].disk.size-gib: leaves no room for driver, toolkit and images of frameworks"
            " (got 60); write 100 at the least; 256 is the default",
            id="a disk without room for driver and images",
        ),
        pytest.param(
            {"groups": [CONTROL | {"disk": {"size-gib": 20}}, GPUS]},
            "hosts.groups[0].disk.size-gib: leaves no room for Kubernetes and its images (got 20)",
            id="a disk without room for Kubernetes",
        ),
        pytest.param(
            gpus(machines=["gpu-1", "gpu-1"]),
            'hosts.groups[1].machines[0]: is the name of two machines (got "gpu-1"); give each its own',
            id="a name twice",
        ),
        pytest.param(
            {"groups": [CONTROL, GPUS | {"name": "control"}]},
            'hosts.groups[0].name: is the name of two groups (got "control"); give each its own',
            id="a group twice",
        ),
        pytest.param(
            gpus(machines=["g" * 60]),
            "hosts.groups[1].machines[0]: makes a machine's name of 64 characters, and 63 are the most",
            id="a name that is too long with the name of the cluster",
        ),
        pytest.param(
            {"network": {"source": "own", "cidr": "10.96.0.0/12"}},
            "hosts.network.cidr: overlaps with service-cidr, which is 10.96.0.0/16: packets for one would go"
            ' to the other (got "10.96.0.0/12"); write another private range, for example 10.10.0.0/18',
            id="a subnet that collides with the cluster's ranges",
        ),
        pytest.param(
            {"network": {"source": "own", "cidr": "172.16.0.0/12"}},
            "hosts.network.cidr: overlaps with docker0 of every host, which is 172.17.0.0/16",
            id="a subnet that collides with docker's",
        ),
        pytest.param(
            {"network": {"source": "own", "cidr": "8.8.8.0/24"}},
            'hosts.network.cidr: is not a private range (got "8.8.8.0/24")',
            id="a public subnet",
        ),
        pytest.param(
            {"network": {"source": "own", "cidr": "10.10.0.0/30"}},
            "hosts.network.cidr: has room for 0 machines, and there are 3",
            id="a subnet without room",
        ),
        pytest.param(
            {"image": {"source": "family", "project": "rhel-cloud", "family": "rhel-9"}},
            "hosts.image.family: is a public image of rhel-9, and those have no cloud-init, which gives a"
            ' machine its host key before anybody logs in (got "rhel-9"); write one of ubuntu-22.04 or'
            " ubuntu-24.04, or an image of your own with cloud-init",
            id="a public image that cannot be given a host key in time",
        ),
        pytest.param(
            {"image": {"source": "image", "project": "my-images", "name": "gpu-base-7"}},
            "hosts.image.system: is missing, and the name gpu-base-7 does not say which operating system it"
            " is (got nothing); write ubuntu-22.04 or ubuntu-24.04",
            id="an image of one's own without its system",
        ),
        pytest.param(
            {"image": {"source": "family", "family": "ubuntu-2404-lts-amd64", "system": "rhel-9"}},
            "hosts.image.system: is not that of ubuntu-2404-lts-amd64, which is ubuntu-24.04",
            id="a system that the name contradicts",
        ),
        pytest.param(
            {"image": {"source": "family", "family": "ubuntu-2404-lts-arm64"}},
            "hosts.image.family: is for ARM, and the machines here have x86 processors",
            id="an image for other processors",
        ),
        pytest.param(
            {"access": {"source": "ranges", "ranges": ["128.0.0.0/1"]}},
            "hosts.access.ranges[0]: lets a large part of the internet try to log in"
            ' (got "128.0.0.0/1"); write ranges of /16 or less, or source: iap',
            id="half of the internet may log in",
        ),
        pytest.param(
            {"access": {"source": "ranges", "ranges": ["10.0.0.0/8"], "public-addresses": True}},
            "hosts.access.ranges[0]: is a private range, and nobody comes from one to a public address",
            id="private ranges for public addresses",
        ),
    ],
)  # fmt: skip
def test_what_google_would_refuse_is_refused_before_anything_is_made(
    changes: dict[str, Any], expected: str
) -> None:
    try:
        found = said(hosts(**changes))
    except ValidationError as error:
        found = [fault["msg"] for fault in error.errors()]
    assert len(found) >= 1
    assert any(expected in one for one in found), found


@pytest.mark.parametrize(
    ("changes", "where", "message"),
    [
        (
            {"access": {"source": "ranges", "ranges": ["0.0.0.0/0"]}},
            ("access", "ranges", "ranges", 0),
            "lets the whole internet try to log in",
        ),
        ({"project": "My Project"}, ("project",), "is not the id of a project"),
        ({"zones": ["us-central1"]}, ("zones", 0), "is not a zone"),
        ({"labels": {"Team": "x"}}, ("labels",), "has a label that Google Cloud refuses"),
        (
            gpus(**{"machine-type": "n1-standart-8"}),
            ("groups", 1, "machine-type"),
            "write one like n1-standard-8",
        ),
        (
            gpus(gpu={"product": "h200-sxm5-141gb", "count": 8}),
            ("groups", 1, "gpu", "product"),
            "is not a GPU that Google Cloud is known to have",
        ),
        (
            {"service-account": {"scopes": ["Everything!"]}},
            ("service-account", "scopes", 0),
            "is not a scope",
        ),
    ],
)
def test_single_values_are_refused_with_what_to_write(
    changes: dict[str, Any], where: tuple[str | int, ...], message: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        hosts(**changes)
    faults = {fault["loc"]: fault["msg"] for fault in caught.value.errors()}
    assert message in faults[where], faults


def test_every_gpu_of_the_table_is_a_product_that_other_rules_know() -> None:
    assert set(machine_types.products()) <= set(gpu_products.names())


def test_a_zone_of_the_table_is_a_zone() -> None:
    table = machine_types.table()
    rows = (*table.attachable.values(), *table.built_in.values())
    for zone in {zone for row in rows for zone in row.zones}:
        assert hosts(zones=[zone]).zones == (zone,)


@pytest.mark.parametrize(
    ("name", "vcpus", "gib"),
    [
        ("n1-standard-8", 8, 30),
        ("n1-highmem-2", 2, 13),
        ("custom-12-79872", 12, 78),
        ("n1-custom-1-1024", 1, 1),
        ("a2-megagpu-16g", 96, 1360),
        ("e2-standard-4", 4, 16),
    ],
)
def test_the_size_of_a_machine_type(name: str, vcpus: int, gib: float) -> None:
    size = machine_types.machine_type(name)
    assert size is not None
    assert (size.vcpus, size.memory_gib) == (vcpus, gib)


@pytest.mark.parametrize(
    "name",
    [
        "n1-standard-3",
        "custom-3-4096",
        "custom-4-4097",
        "custom-4-1024",
        "custom-98-98304",
        "f1-micro",
    ],
)
def test_what_is_no_machine_type(name: str) -> None:
    assert machine_types.machine_type(name) is None
