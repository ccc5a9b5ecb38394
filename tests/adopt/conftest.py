"""An empty stack, whose programs find our packages and start quickly."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adopt.guide import DOCS
from tests.engine.shellkit import Shell, shell
from tests.engine.warmkit import warm_programs
from tests.providers.conftest import shared_processes, start_provider

__all__ = ["shared_processes", "shell", "start_provider"]


@pytest.fixture(scope="session")
def warm() -> Iterator[Path]:
    """Programs start from a process that has imported Pulumi: there are many, and this is not about how."""
    with warm_programs() as made:
        yield made


@pytest.fixture
def project(shell: Shell, warm: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    plugin = {"name": "gpu-clusters", "path": str(DOCS.parent / "gpuclusters/providers")}
    document = {"name": "gpu-clusters", "runtime": "python", "plugins": {"providers": [plugin]}}
    (shell.folder / "Pulumi.yaml").write_text(json.dumps(document))
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    monkeypatch.setenv("PULUMI_PYTHON_CMD", str(warm))
    monkeypatch.setenv("PATH", f"{warm.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PULUMI_STACK", "dev")
    shell.ok("stack", "init", "dev")
    return shell
