"""What a command imports at its start, which everybody waits for."""

from __future__ import annotations

import subprocess
import sys

from tests.unit.cli.conftest import ROOT


def test_the_command_starts_without_what_reaches_machines_and_clusters() -> None:
    program = (
        "import sys, gpuclusters.cli.main\n"
        "sys.exit(' '.join({'pulumi', 'grpc', 'asyncssh', 'kubernetes'} & sys.modules.keys()) or 0)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
