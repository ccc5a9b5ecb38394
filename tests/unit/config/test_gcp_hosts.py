"""Machines on Google Cloud in the configuration: what is refused, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from gpuclusters.compat import gpu_products
from gpuclusters.config import gcp_rules
from gpuclusters.config.fault import render_path
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.rules.rule import Wrong, rule
from gpuclusters.core.section import Section
from gpuclusters.gcp import machine_types
from tests.unit.config.documents import google, lines

CASES = yaml.safe_load(Path(__file__).with_name("gcp_cases.yaml").read_text(encoding="utf-8"))
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
GOOD = google(groups=[CONTROL, GPUS])


def hosts(**changes: Any) -> GcpHosts:
    return GcpHosts.model_validate(GOOD | changes)


class Cluster(Section):
    hosts: GcpHosts


@rule("rke2.google-cloud-refuses", "hosts")
def made_on_google_cloud(_cluster: Cluster, section: GcpHosts) -> Iterable[Wrong]:
    return gcp_rules.check(section, cluster="lab", ranges=RANGES)


def said(section: GcpHosts) -> list[str]:
    return lines(made_on_google_cloud.check(Cluster.model_construct(hosts=section)))


def test_a_right_section_has_no_flaw() -> None:
    assert said(hosts()) == []
    assert hosts().machines == ("cp-1", "gpu-1", "gpu-2")
    made = hosts()
    assert made.group_of("gpu-2") is made.groups[1]
    assert made.group_of("gpu-3") is None


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
def test_what_google_would_refuse_is_refused_before_anything_is_made(case: dict[str, Any]) -> None:
    changes = dict(case["hosts"])
    groups = [base | changes.pop(base["name"], {}) for base in (CONTROL, GPUS)]
    try:
        found = said(hosts(groups=groups, **changes))
    except ValidationError as error:
        found = [f"{render_path(fault['loc'])}: {fault['msg']}" for fault in error.errors()]
    assert any(case["says"] in one for one in found), found


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
