"""A fresh clone: examples are previewed, reviewed and drawn without account, backend or secret."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.warmkit import WarmProject, warm_project

ROOT = Path(__file__).resolve().parents[2]
OURS = ("GOOGLE_", "PULUMI_", "GPU_CLUSTERS_")

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmProject]:
    with warm_project() as made:
        yield made


@pytest.fixture
def run(tmp_path: Path, warm: WarmProject) -> Run:
    """A command about a stack, in a home that is empty before and has no state afterwards."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    env |= {"HOME": str(tmp_path), "GPU_CLUSTERS_ENGINE": "embedded", "COLUMNS": "200"}
    env |= warm.variables

    def run(verb: str, stack: str, *flags: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        file = ROOT / f"Pulumi.{stack}.yaml"
        before = file.read_bytes()
        command = [warm.cli, verb, "--stack", stack, *flags]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert file.read_bytes() == before
        assert {path.name for path in tmp_path.iterdir()} <= {".pulumi"}
        return done

    return run


def test_a_preview_names_the_secrets_that_are_missing(run: Run) -> None:
    lines = run("preview", "hgx-h100").stdout.splitlines()
    assert lines[1].startswith("no backend: previewed against an empty state that is not kept")
    assert any(line.strip().endswith("to create") for line in lines[-3:])
    missing = [line for line in lines if "is missing" in line]
    unset = ("bmc-password", "controller-ssh-private-key", "kubeconfig")
    for line, key in zip(sorted(missing), unset, strict=True):
        assert f": {key}: is missing" in line
        assert f"pulumi config set --secret {key}" in line


def test_a_plan_is_json_alone_and_shows_no_key(run: Run) -> None:
    plan = run("preview", "usernetes-v100", "--json").stdout
    assert {step["op"] for step in json.loads(plan)["steps"]} == {"create"}
    assert "gpu-clusters:gpu:UsernetesNode" in plan
    for word in ("PRIVATE KEY", "client-key-data", "kubeadm join"):
        assert word not in plan


def test_a_review_previews_and_counts_machines_gpus_and_dollars(run: Run) -> None:
    done = run("review", "gke-v100")
    assert "no backend" in done.stderr
    assert "is missing" not in done.stdout
    assert "**Capacity of `gke gke-v100`**" in done.stdout
    assert "| machines | 0 | 3 | +3 |" in done.stdout
    assert "| GPUs | 0 | 2 | +2 |" in done.stdout
    # Of the table in docs/usernetes.md: two n1-standard-8 with a V100 are 5.79; n1-standard-4 with its disk
    # and the control plane 0.30.
    assert "| per hour | 0 | 6.09 | +6.09 |" in done.stdout
    assert "unknown" not in done.stdout.split("<details")[0]


def test_a_cluster_that_google_makes_is_drawn_as_configured_and_not_live(run: Run) -> None:
    drawn = run("draw", "gke-v100").stdout
    assert [name for name in ("system-1", "v100-1", "v100-2") if name not in drawn] == []
    assert "Google names the nodes" in run("draw", "gke-v100", "--live", code=2).stderr


def test_every_placeholder_is_refused_before_anything_is_made(run: Run) -> None:
    said = run("up", "gke-v100", "--yes", code=2).stderr
    for key in ("gke.project", "gke.api-ranges[0]", "gke.proof.training.image"):
        assert f"{key}: is a placeholder of the examples" in said
    assert "3 faults; nothing was started" in said
