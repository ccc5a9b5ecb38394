"""How the embedded engine's time grows with the number of resources; ratios within one run.

Nothing here passes or fails by time. `make bench` prints the table.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.bench

PROGRAM = Path(__file__).parent / "many"
COUNTS = (10, 100, 400)


def timed(folder: Path, *args: str) -> float:
    """Seconds that a verb of the engine takes."""
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith("PULUMI_")},
        "PULUMI_BACKEND_URL": f"file://{folder / 'state'}",
        "PULUMI_CONFIG_PASSPHRASE": "",
    }
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "lab.engine", *args, "--stack", "dev"],
        cwd=folder / "many",
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return time.perf_counter() - begin


@pytest.mark.timeout(900)
def test_time_grows_with_resources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(PROGRAM, tmp_path / "many", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "state").mkdir()
    timed(tmp_path, "stack", "init")
    rows = []
    for count in COUNTS:
        timed(tmp_path, "config", "set", "count", str(count))
        rows.append(
            (
                count,
                timed(tmp_path, "up", "--yes", "--skip-preview"),
                timed(tmp_path, "up", "--yes", "--skip-preview"),
                timed(tmp_path, "preview"),
            )
        )
    base = rows[0]
    with capsys.disabled():
        print("\nresources   up       again    preview   (seconds; × of the first row)")
        for count, *seconds in rows:
            cells = (f"{s:6.2f} ×{s / b:4.1f}" for s, b in zip(seconds, base[1:], strict=True))
            print(f"{count:9d}   " + "  ".join(cells))
