"""The example on Google Cloud, previewed offline: nothing is open to everybody, nothing is shown in clear."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.stacks.declaring import PROJECT, previewed

STACK = "usernetes-v100"


@pytest.fixture(scope="module")
def preview(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `preview --json` of the embedded engine says, with no account and no network."""
    folder, file = tmp_path_factory.mktemp("example"), PROJECT / f"Pulumi.{STACK}.yaml"
    found: dict[str, Any] = json.loads(previewed(folder, STACK, file.read_text(), "--json"))
    return found


def made(preview: dict[str, Any], kind: str) -> dict[str, Any]:
    """Inputs of what is made, of one type, by name."""
    return {
        step["urn"].rpartition("::")[2]: step["newState"]["inputs"]
        for step in preview["steps"]
        if step["op"] == "create" and step["newState"]["type"].endswith(kind)
    }


def test_machines_hosts_and_nodes_are_made_in_the_numbers_of_the_example(
    preview: dict[str, Any],
) -> None:
    assert set(made(preview, ":GcpMachine")) == {f"v100-{n}-machine" for n in (1, 2, 3)}
    assert set(made(preview, ":UsernetesNode")) == {f"v100-{n}-node" for n in (1, 2, 3)}
    assert {step["op"] for step in preview["steps"]} == {"create"}


def test_no_firewall_rule_is_open_to_everybody(preview: dict[str, Any]) -> None:
    rules = made(preview, ":Firewall")
    assert rules
    for name, rule in rules.items():
        assert "0.0.0.0/0" not in json.dumps(rule), name
        assert (
            rule.get("sourceRanges") or rule.get("sourceTags") or rule.get("sourceServiceAccounts")
        )


def test_no_key_and_no_kubeconfig_are_shown(preview: dict[str, Any]) -> None:
    text = json.dumps(preview)
    for word in ("PRIVATE KEY", "client-key-data", "kubeadm join"):
        assert word not in text
