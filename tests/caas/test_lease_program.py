"""`python -m caas.controllers` with settings that it cannot use; elected and in charge it is in tests/e2e."""

import os
import subprocess
import sys
from pathlib import Path


def test_settings_that_cannot_be_used_are_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("cluster: [")
    (tmp_path / "secrets").mkdir()
    own = {"GPU_CLUSTERS_SETTINGS": "settings.yaml", "GPU_CLUSTERS_SECRETS": "secrets"}
    given = {name: str(tmp_path / file) for name, file in own.items()}
    command = [sys.executable, "-m", "caas.controllers"]
    done = subprocess.run(command, env=os.environ | given, capture_output=True, text=True)
    assert done.returncode == 1
    assert "settings.yaml is not YAML" in done.stderr
    assert "Traceback" not in done.stderr
