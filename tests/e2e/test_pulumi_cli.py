"""The same project under Pulumi's own CLI, where it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import SOURCE, Checkout, checkout

PULUMI = shutil.which("pulumi")

pytestmark = [
    pytest.mark.pulumi_cli,
    pytest.mark.lab,
    pytest.mark.timeout(1800),  # its plugins are fetched the first time
    pytest.mark.skipif(PULUMI is None, reason="the Pulumi CLI is not on PATH"),
]


def pulumi(dev: Checkout, *args: str) -> subprocess.CompletedProcess[str]:
    """Call the real CLI on the dev stack."""
    assert PULUMI is not None
    return subprocess.run(
        [PULUMI, *args, "--stack", "dev", "--non-interactive", "--color", "never"],
        cwd=dev.folder,
        env={**dev.engine_env, "PULUMI_SKIP_UPDATE_CHECK": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_a_stack_made_by_the_embedded_engine_is_picked_up_without_a_change(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with checkout(tmp_path_factory.mktemp("cli")) as dev:
        dev.up()
        done = pulumi(dev, "preview", "--json", "--expect-no-changes")
        assert done.returncode == 0, done.stdout + done.stderr
        assert set(json.loads(done.stdout)["changeSummary"]) == {"same"}


def test_a_clean_clone_can_be_previewed_without_a_lab(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(SOURCE), str(clone)], check=True)
    env = {
        **os.environ,
        "PULUMI_BACKEND_URL": f"file://{tmp_path}",
        "PULUMI_CONFIG_PASSPHRASE": "gpu-clusters-lab",
    }
    env.pop("GPU_CLUSTERS_LAB", None)
    assert PULUMI is not None
    for args in (["install"], ["stack", "init", "dev"], ["preview", "--stack", "dev"]):
        done = subprocess.run(
            [PULUMI, *args, "--non-interactive"],
            cwd=clone,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
