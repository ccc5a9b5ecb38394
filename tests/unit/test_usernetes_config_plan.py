"""From the section of a usernetes cluster to what components are told, and its page."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuclusters.compat import gpu_products, rke2_matrix, usernetes_versions
from gpuclusters.config.stack import ClusterType, StackConfig, parse
from gpuclusters.gcp import machine_types
from gpuclusters.usernetes.addresses import NetworkPlan, Ports, collisions, shared_ports
from tests.fixtures.tables import beside
from tests.unit.config.documents import base, patched

CASES = beside(__file__, "usernetes_planned.yaml")
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/usernetes.md").read_text(encoding="utf-8")
PRICES = yaml.safe_load((ROOT / "gpuclusters/compat/data/prices.yaml").read_text(encoding="utf-8"))
EXAMPLES = [
    {key.partition(":")[2]: value for key, value in yaml.safe_load(text).items()}
    for text in re.findall(r"```yaml\n(gpu-clusters:cluster-type.*?)```", PAGE, re.DOTALL)
]


def assert_right(document: dict[str, Any]) -> None:
    parsed = parse(document)
    assert isinstance(parsed, StackConfig), "\n".join(map(str, parsed))
    assert parsed.warnings == ()


def test_everything_that_is_wrong_is_said_at_once() -> None:
    parsed = parse(patched(base(ClusterType.USERNETES), {"usernetes": CASES["wrong"]}))
    assert isinstance(parsed, list)
    assert [".".join(map(str, fault.path[1:])) for fault in parsed] == CASES["faults"]


def test_the_page_has_every_version_of_the_sets() -> None:
    for name in usernetes_versions.table().sets:
        one = usernetes_versions.version_set(name)
        for value in one.model_dump(exclude={"name", "node_image", "slirp4netns"}).values():
            assert value is None or f"{value}" in PAGE, (name, value)


def test_the_page_has_each_of_the_29_failures_once() -> None:
    rows = re.findall(r"^\| ([0-9]+) \|", PAGE, re.MULTILINE)
    assert [int(row) for row in rows] == list(range(1, 30))


def test_without_root_the_page_changes_the_example_before() -> None:
    (changed,) = re.findall(r"```yaml\n(account:.*?)```", PAGE, re.DOTALL)
    section = {**EXAMPLES[1]["usernetes"], **yaml.safe_load(changed)}
    section["hosts"] = {**section["hosts"], "user": section["account"]}
    assert_right({**EXAMPLES[1], "usernetes": section})


def test_the_page_has_the_prices_of_the_table() -> None:
    prices, hours = PRICES["google-cloud"]["regions"], PRICES["hours-per-month"]
    rows = re.findall(r"^\| (n1-standard-([0-9]+)) with ([0-9]) × V100 \| ([0-9.]+) \|", PAGE, re.M)
    assert [int(count) for _, _, count, _ in rows] == [1, 2, 4, 8]
    for region in ("us-central1", "us-east1", "us-west1"):
        known = prices[region]
        for name, vcpus, count, said in rows:
            size = machine_types.machine_type(name)
            assert size is not None
            machine = int(vcpus) * known["n1"]["vcpu-hour"]
            machine += size.memory_gib * known["n1"]["gib-hour"]
            disk = 256 * known["disks"]["pd-balanced"] / hours
            dollars = machine + int(count) * known["gpus"]["nvidia-tesla-v100"] + disk
            assert f"{dollars:.2f}" == said, name


_slow = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@_slow
@given(st.sets(st.integers(1, 254), min_size=2, max_size=40))
def test_numbers_give_networks_that_do_not_meet(numbers: set[int]) -> None:
    subnets = {str(number): NetworkPlan().node_subnet(number) for number in numbers}
    assert list(collisions(subnets)) == []
    assert all(NetworkPlan().node_ip(number) in subnets[str(number)] for number in numbers)


@pytest.mark.parametrize("number", [0, 255, -1])
def test_a_node_has_a_number_from_1_to_254(number: int) -> None:
    with pytest.raises(ValueError, match="from 1 to 254"):
        NetworkPlan().node_subnet(number)


def test_a_range_that_is_too_small_for_a_number_is_said() -> None:
    small = NetworkPlan.model_validate({"node-subnets": "10.7.0.0/20"})
    assert small.node_subnet(3) == IPv4Network("10.7.3.0/24")
    with pytest.raises(ValueError, match="write a /16"):
        small.node_subnet(16)
    assert NetworkPlan().node_ip(254) == IPv4Address("10.100.254.100")


def test_a_port_is_shared_within_one_protocol_alone() -> None:
    assert list(shared_ports(Ports(flannel=6443))) == []
    assert list(shared_ports(Ports(etcd=6443))) == [(6443, ("etcd", "kube_apiserver"))]


@pytest.mark.parametrize("name", ["current", "proven"])
def test_a_set_agrees_with_the_tables_of_drivers(name: str) -> None:
    one = usernetes_versions.version_set(name)
    branch = rke2_matrix.branch(rke2_matrix.branch_of(one.driver))
    assert branch is not None
    assert not gpu_products.Architecture.VOLTA.is_before(branch.oldest)
    assert one.driver == branch.newest, "the tables differ in the newest driver of the branch"
    assert int(one.cuda_newest.partition(".")[0]) == 12
    assert f":{one.kubernetes}@sha256:" in one.node_image
    assert one.usernetes.startswith(f"gen{one.generation}-")
    assert one.archive_url.endswith(f"/{one.usernetes}.tar.gz")
