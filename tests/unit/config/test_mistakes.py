"""Mistakes that people made with the examples: each is answered by its key, and by what to write instead."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.config.cluster import placeholders
from gpuclusters.config.fault import lines
from gpuclusters.config.stack import StackConfig, check_stack_file

ROOT = Path(__file__).resolve().parents[3]
HGX, RKE2, V100 = "hgx-h100", "rke2-a100", "usernetes-v100"
Section = dict[str, Any]


def machine(section: Section, at: int) -> Section:
    return section["hosts"]["machines"][at]


def first_key(section: Section) -> str:
    return str(machine(section, 0)["host-key"])


MISTAKES: dict[str, tuple[str, Callable[[Section], object], str, str]] = {
    "a list with one bad entry says nothing of its length": (
        HGX,
        lambda s: s["tenants"][0].update(sizes=[4, "x"]),
        "caas.tenants[0].sizes[1]: is not a whole number",
        "write a whole number",
    ),
    "an authorized key that is none": (
        V100,
        lambda s: s["hosts"].update({"authorized-keys": ["me@laptop"]}),
        "usernetes.hosts.authorized-keys[0]: is not a public SSH key",
        "id_ed25519.pub",
    ),
    "a private key among the public ones": (
        V100,
        lambda s: s["hosts"].update({"authorized-keys": ["-----BEGIN OPENSSH PRIVATE KEY-----"]}),
        "usernetes.hosts.authorized-keys[0]: is a private key",
        "replace that key everywhere",
    ),
    "a private key under a key that nobody knows": (
        HGX,
        lambda s: s["hosts"].update({"private-key": "-----BEGIN OPENSSH PRIVATE KEY-----\nabc"}),
        "caas.hosts.private-key: is not a known key",
        "replace that secret",
    ),
    "off without quotes": (
        RKE2,
        lambda s: s.update({"secure-boot": "off"}),
        "rke2.secure-boot: is neither true nor false",
        "write true or false, without quotes",
    ),
    "the host key of a document": (
        HGX,
        lambda s: machine(s, 0).update({"host-key": "ssh-ed25519 AAAA..."}),
        "caas.hosts.machines[0].host-key: is cut off or mistyped",
        "ssh-keyscan -t ed25519",
    ),
    "a host key without its end": (
        HGX,
        lambda s: machine(s, 0).update({"host-key": first_key(s)[:-4]}),
        "caas.hosts.machines[0].host-key: is cut off or mistyped",
        "ssh-keyscan -t ed25519",
    ),
    "one host key twice": (
        RKE2,
        lambda s: machine(s, 1).update({"host-key": first_key(s)}),
        "rke2.hosts.machines[1].host-key: is also that of machines[0]",
        "write the one of this machine",
    ),
    "one BMC twice": (
        HGX,
        lambda s: s["nodes"][1]["bmc"].update(url=s["nodes"][0]["bmc"]["url"]),
        "caas.nodes[1].bmc.url: is also that of nodes[0]",
        "write the BMC of this machine",
    ),
    "text for a mapping of one kind": (
        RKE2,
        lambda s: s.update(cni="cilium"),
        "rke2.cni: is not a mapping",
        "write {kind: cilium}",
    ),
    "the name of a node for the node": (
        HGX,
        lambda s: s["nodes"].__setitem__(3, "hgx-004"),
        "caas.nodes[3]: is not a mapping",
        "write {name: hgx-004}",
    ),
    "machines outside of the closed networks": (
        HGX,
        lambda s: s["network"].update({"node-cidrs": ["10.99.0.0/24"]}),
        "caas.hosts.machines[0].address: is in no range that is closed to tenants",
        "and 7 more",
    ),
    "no closed networks": (
        HGX,
        lambda s: s.pop("network"),
        "caas.network.node-cidrs: is missing",
        'write it, ["10.20.0.0/24"] for example',
    ),
    "another board than the machines have": (
        HGX,
        lambda s: s.update(platform="hgx-b200"),
        "caas.nodes[0].gpus: is missing, and the preset of hgx-b200 knows no PCI addresses",
        "more",
    ),
    "a mistyped item of firmware": (
        HGX,
        lambda s: s["leases"]["golden-firmware"].update(versions={"HGX_FW_GPUU": ["96"]}),
        "caas.leases.golden-firmware.versions.HGX_FW_GPUU: is no item",
        "did you mean HGX_FW_GPU?",
    ),
    "a driver that does not exist": (
        RKE2,
        lambda s: s["driver"].update(version="580.999.99"),
        "rke2.driver.version: is newer than any of its branch",
        "580.178.04 does",
    ),
    "an image of no known system": (
        V100,
        lambda s: s["hosts"]["image"].update(family="ubuntu-2504-lts-amd64"),
        "usernetes.hosts.image.system: is missing",
        "write ubuntu-22.04 or ubuntu-24.04",
    ),
    "an address that is none": (
        HGX,
        lambda s: machine(s, 0).update(address="10.20.0.256"),
        "caas.hosts.machines[0].address: is not a host name or an address",
        "10.0.0.11",
    ),
}


def said(folder: Path, document: Any) -> list[str]:
    file = folder / "Pulumi.mine.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    found = check_stack_file(file)
    return lines(file, found.warnings if isinstance(found, StackConfig) else found)


def example(stack: str) -> tuple[dict[str, Any], Section]:
    document = yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text())
    kind = document["config"]["gpu-clusters:cluster-type"]
    return document, document["config"][f"gpu-clusters:{kind}"]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_by_its_key_and_what_to_write(mistake: str, tmp_path: Path) -> None:
    stack, make, wrong, instead = MISTAKES[mistake]
    document, section = example(stack)
    before = said(tmp_path, document)
    make(section)
    answer = [line for line in said(tmp_path, document) if line not in before]
    assert any(re.match(rf"Pulumi\.mine\.yaml:\d+: {re.escape(wrong)}", line) for line in answer), (
        answer
    )
    assert any(instead in line for line in answer)
    assert len(answer) <= 7, "one mistake is not told over and over"
    assert "PRIVATE KEY" not in "".join(answer)


@pytest.mark.parametrize("key", ["caas", "gpu-cluster:caas", "gpu_clusters:caas"])
def test_a_section_without_the_namespace_is_told_its_name(key: str, tmp_path: Path) -> None:
    document, _ = example(HGX)
    document["config"][key] = document["config"].pop("gpu-clusters:caas")
    (line,) = said(tmp_path, document)
    assert f'(got the key "{key}"); write gpu-clusters:caas' in line


@pytest.mark.parametrize("stack", [HGX, RKE2, V100])
def test_everything_made_up_in_an_example_is_known_as_a_placeholder(stack: str) -> None:
    checked = check_stack_file(ROOT / f"Pulumi.{stack}.yaml")
    assert isinstance(checked, StackConfig)
    found = {one.path for one in placeholders(checked.section)}
    _, section = example(stack)
    made_up = {path for path, text in leaves(section) if any(m in text for m in MADE_UP)}
    assert made_up
    assert found == made_up


MADE_UP = ("example.", "EXAMPLE", "0" * 40, "my-project")


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, dict):
        return [one for key, inner in value.items() for one in leaves(inner, (*path, key))]
    if isinstance(value, list):
        return [one for at, inner in enumerate(value) for one in leaves(inner, (*path, at))]
    return [(path, value if isinstance(value, str) else json.dumps(value))]


def test_a_lab_may_have_made_up_names() -> None:
    checked = check_stack_file(ROOT / "Pulumi.dev.yaml")
    assert isinstance(checked, StackConfig)
    assert "example.com" in (ROOT / "Pulumi.dev.yaml").read_text()
    assert placeholders(checked.section) == []
