"""A fresh clone: examples are previewed and reviewed without account, backend, passphrase or secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(home: Path, verb: str, stack: str, *flags: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PULUMI_", "GPU_CLUSTERS_"))}
    env |= {"HOME": str(home), "GPU_CLUSTERS_ENGINE": "embedded", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "gpuclusters.cli", verb, "--stack", stack, *flags],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("stack", "unset"),
    [
        ("hgx-h100", ["bmc-password", "controller-ssh-private-key", "kubeconfig"]),
        ("gke-v100", []),
    ],
)
def test_an_example_previews_in_a_fresh_clone_and_changes_nothing(
    tmp_path: Path, stack: str, unset: list[str]
) -> None:
    file = ROOT / f"Pulumi.{stack}.yaml"
    before = file.read_bytes()
    done = run(tmp_path, "preview", stack)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].startswith("no backend: previewed against an empty state that is not kept")
    assert any(line.strip().endswith("to create") for line in lines[-3:])
    missing = [line for line in lines if "is missing" in line]
    assert len(missing) == len(unset)
    for line, key in zip(sorted(missing), unset, strict=True):
        assert f": {key}: is missing" in line
        assert f"pulumi config set --secret {key}" in line
    assert file.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} <= {".pulumi"}, "no state in the home"


def test_the_plan_without_a_backend_is_json_alone_and_reviewed_as_it_is_previewed(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, "preview", "usernetes-v100", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = json.loads(done.stdout)["steps"]
    assert {step["op"] for step in steps} == {"create"}
    done = run(tmp_path, "review", "usernetes-v100", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (reviewed,) = json.loads(done.stdout)["stacks"]
    assert reviewed["counts"]["create"] > 0
    (capacity,) = reviewed["capacity"]
    assert capacity["machines"] == {"before": 0, "after": 3}
    assert reviewed["cost"]["after"]["unknown"] == []
    assert "no backend" in done.stderr
