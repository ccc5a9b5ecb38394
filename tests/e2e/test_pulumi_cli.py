"""The same project under Pulumi's own CLI, where it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e.conftest import SOURCE, checkout

PULUMI = shutil.which("pulumi")

pytestmark = [
    pytest.mark.pulumi_cli,
    pytest.mark.lab,
    pytest.mark.timeout(1800),  # its plugins are fetched the first time
    pytest.mark.skipif(PULUMI is None, reason="the Pulumi CLI is not on PATH"),
]


def pulumi(folder: Path, env: Mapping[str, str], *args: str) -> str:
    """What the real CLI prints."""
    assert PULUMI is not None
    done = subprocess.run(
        [PULUMI, *args, "--non-interactive", "--color", "never"],
        cwd=folder,
        env={**env, "PULUMI_SKIP_UPDATE_CHECK": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_stack_made_by_the_embedded_engine_is_picked_up_without_a_change(tmp_path: Path) -> None:
    with checkout(tmp_path) as dev:
        dev.up()
        words = ("preview", "--json", "--expect-no-changes", "--stack", "dev")
        shown = pulumi(dev.folder, dev.engine_env, *words)
        assert set(json.loads(shown)["changeSummary"]) == {"same"}


def test_a_clean_clone_can_be_previewed_without_a_lab(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(SOURCE), str(clone)], check=True)
    env = {key: value for key, value in os.environ.items() if key != "GPU_CLUSTERS_LAB"}
    env |= {
        "PULUMI_BACKEND_URL": f"file://{tmp_path}",
        "PULUMI_CONFIG_PASSPHRASE": "gpu-clusters-lab",
    }
    for words in (["install"], ["stack", "init", "dev"], ["preview", "--stack", "dev"]):
        pulumi(clone, env, *words)
