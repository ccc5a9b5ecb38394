"""Examples as a user tries them in a fresh clone, with no account and no lab: preview, review, draw, `up`."""

import os
import subprocess
import sys
from pathlib import Path

from tests.stacks.declaring import PROJECT

STACK = "gke-v100"


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command without any account, backend or lab."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("GOOGLE_", "PULUMI_", "GPU_CLUSTERS_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "gpuclusters.cli", *words],
        cwd=PROJECT,
        env={**kept, "HOME": str(home), "GPU_CLUSTERS_ENGINE": "embedded", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_preview_shows_no_key_and_its_review_counts_machines_gpus_and_dollars(
    tmp_path: Path,
) -> None:
    previews = {}
    for stack in (STACK, "usernetes-v100"):
        done = run(tmp_path, "preview", "--stack", stack, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        previews[stack] = done.stdout
    assert "gpu-clusters:gpu:UsernetesNode" in previews["usernetes-v100"]
    for word in ("PRIVATE KEY", "client-key-data", "kubeadm join"):
        assert word not in str(previews)

    plan = tmp_path / "plan.json"
    plan.write_text(previews[STACK])
    done = run(tmp_path, "review", str(plan))
    assert "**Capacity of `gke gke-v100`**" in done.stdout
    assert "| machines | 0 | 3 | +3 |" in done.stdout
    assert "| GPUs | 0 | 2 | +2 |" in done.stdout
    # Of the table in docs/usernetes.md: two n1-standard-8 with a V100 are 5.79; n1-standard-4 with its disk
    # and the control plane 0.30.
    assert "| per hour | 0 | 6.09 | +6.09 |" in done.stdout
    assert "unknown" not in done.stdout.split("<details")[0]


def test_it_can_be_drawn_as_configured_and_not_live(tmp_path: Path) -> None:
    done = run(tmp_path, "draw", "--stack", STACK)
    assert done.returncode == 0, done.stderr
    for name in ("system-1", "v100-1", "v100-2"):
        assert name in done.stdout
    live = run(tmp_path, "draw", "--stack", STACK, "--live")
    assert live.returncode == 2
    assert "Google names the nodes" in live.stderr


def test_every_placeholder_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    done = run(tmp_path, "up", "--stack", STACK, "--yes")
    assert done.returncode == 2
    for key in ("gke.project", "gke.api-ranges[0]", "gke.proof.training.image"):
        assert f"{key}: is a placeholder of the examples" in done.stderr
    assert "3 faults; nothing was started" in done.stderr
    assert "Traceback" not in done.stderr
