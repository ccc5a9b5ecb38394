"""The example on Google Cloud, previewed offline: nothing is open to everybody, nothing is shown in clear."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.stacks.declaring import PROJECT

STACK = "usernetes-v100"


@pytest.fixture(scope="module")
def preview(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `preview --json` of the embedded engine says, with no account and no network."""
    folder = tmp_path_factory.mktemp("example")
    for path in PROJECT.iterdir():
        if not path.name.startswith((".git", ".lab", "Pulumi.", "tests", "docs")):
            (folder / path.name).symlink_to(path)
    for name in ("Pulumi.yaml", f"Pulumi.{STACK}.yaml"):
        (folder / name).write_text((PROJECT / name).read_text())
    backend = folder / "state"
    backend.mkdir()

    def engine(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "engine", *arguments],
            cwd=folder,
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith(("GOOGLE_", "PULUMI_"))},
                "PULUMI_BACKEND_URL": f"file://{backend}",
                "PULUMI_CONFIG_PASSPHRASE": "a passphrase",
                "PULUMI_PYTHON_CMD": sys.executable,
                "GPU_CLUSTERS_LAB": str(folder / "no-lab"),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    engine("stack", "init", STACK)
    found: dict[str, Any] = json.loads(engine("preview", "--stack", STACK, "--json"))
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
