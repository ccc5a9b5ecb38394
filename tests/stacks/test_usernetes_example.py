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


def test_no_key_and_no_kubeconfig_are_shown(preview: dict[str, Any]) -> None:
    text = json.dumps(preview)
    for word in ("PRIVATE KEY", "client-key-data", "kubeadm join"):
        assert word not in text
