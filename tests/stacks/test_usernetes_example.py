"""The example on Google Cloud, previewed by the embedded engine with no account, no network and no lab."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.stacks.declaring import PROJECT

STACK = "usernetes-v100"


def test_no_key_and_no_kubeconfig_are_shown_in_a_preview(tmp_path: Path) -> None:
    for path in PROJECT.iterdir():
        if not path.name.startswith((".git", ".lab", "Pulumi.", "tests", "docs")):
            (tmp_path / path.name).symlink_to(path)
    for name in ("Pulumi.yaml", f"Pulumi.{STACK}.yaml"):
        (tmp_path / name).write_text((PROJECT / name).read_text())
    (tmp_path / "state").mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GOOGLE_", "PULUMI_"))}
    told = {
        "PULUMI_BACKEND_URL": f"file://{tmp_path / 'state'}",
        "PULUMI_CONFIG_PASSPHRASE": "a passphrase",
        "PULUMI_PYTHON_CMD": sys.executable,
        "GPU_CLUSTERS_LAB": str(tmp_path / "no-lab"),
    }
    for words in (("stack", "init", STACK), ("preview", "--stack", STACK, "--json")):
        done = subprocess.run(
            [sys.executable, "-m", "engine", *words],
            cwd=tmp_path,
            env={**kept, **told},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "gpu-clusters:gpu:UsernetesNode" in done.stdout
    for word in ("PRIVATE KEY", "client-key-data", "kubeadm join"):
        assert word not in done.stdout
