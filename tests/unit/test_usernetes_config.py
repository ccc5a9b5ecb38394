"""The smallest configuration of a usernetes cluster, all that is wrong at once, and the page of usernetes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.compat import usernetes_versions
from gpuclusters.config.stack import ClusterType, StackConfig, parse
from gpuclusters.gcp import machine_types
from tests.unit.config.documents import base, patched

CASES = yaml.safe_load(Path(__file__).with_name("usernetes_sections.yaml").read_text())
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


def test_in_the_lab_name_machines_gpus_and_a_checksum_are_enough() -> None:
    assert_right({"cluster-type": "usernetes", "usernetes": CASES["smallest"]})


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


def test_the_page_has_a_quickstart_for_both_sources() -> None:
    sources = [example["usernetes"]["hosts"]["source"] for example in EXAMPLES]
    assert sources == ["gcp", "existing"]


@pytest.mark.parametrize("document", EXAMPLES, ids=["google cloud", "sudo"])
def test_an_example_of_the_page_is_right(document: dict[str, Any]) -> None:
    assert_right(document)


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
