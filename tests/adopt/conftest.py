"""An empty stack, whose programs find our packages and start quickly."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from tests.adopt.guide import DOCS
from tests.engine.shellkit import Shell, shell
from tests.engine.warmkit import Warm, warm_engine
from tests.providers.conftest import shared_processes, start_provider

__all__ = ["shared_processes", "shell", "start_provider"]


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Programs start from a process that has imported Pulumi: there are many, and this is not about how."""
    with warm_engine() as made:
        yield made


@pytest.fixture
def project(shell: Shell, warm: Warm, monkeypatch: pytest.MonkeyPatch) -> Shell:
    plugin = {"name": "gpu-clusters", "path": str(DOCS.parent / "gpuclusters/providers")}
    document = {"name": "gpu-clusters", "runtime": "python", "plugins": {"providers": [plugin]}}
    (shell.folder / "Pulumi.yaml").write_text(json.dumps(document))
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    monkeypatch.setenv("PULUMI_PYTHON_CMD", str(warm.python))
    monkeypatch.setenv("PATH", f"{warm.python.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PULUMI_STACK", "dev")
    shell.ok("stack", "init", "dev")
    return shell
