"""Every committed stack file declares what its golden list says; a reviewer sees changes as a diff."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest
from syrupy.assertion import SnapshotAssertion

from gpuclusters.config import loader
from gpuclusters.config.stack_file import read_stack_file
from stacks import caas
from tests.components.recorder import Recorder, record

PROJECT = Path(__file__).resolve().parents[2]
STACK_FILES = sorted(PROJECT.glob("Pulumi.*.yaml"))


def declare(path: Path, *, preview: bool) -> Recorder:
    """Run the program with a stack file, no lab running, secrets made up."""
    keys = read_stack_file(path)
    assert isinstance(keys, dict), keys
    config = {
        f"gpu-clusters:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in keys.items()
    }
    config |= {"gpu-clusters:kubeconfig": "made up", "gpu-clusters:ssh-private-key": "made up"}

    def program() -> None:
        pulumi.runtime.set_all_config(
            config, ["gpu-clusters:kubeconfig", "gpu-clusters:ssh-private-key"]
        )
        loaded = loader.load(PROJECT)
        caas.build(loaded.section, loaded.secrets)

    return record(program, preview=preview)


@pytest.mark.parametrize("path", STACK_FILES, ids=[path.name for path in STACK_FILES])
def test_a_stack_file_declares_exactly_this(
    path: Path, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPU_CLUSTERS_LAB", str(tmp_path))
    engine = declare(path, preview=True)
    assert "\n".join(sorted(f"{r.type} {r.name}" for r in engine.seen)) == snapshot


def test_a_stack_in_a_lab_that_does_not_run_can_be_previewed_and_not_deployed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPU_CLUSTERS_LAB", str(tmp_path))
    assert declare(PROJECT / "Pulumi.dev.yaml", preview=True).seen
    with pytest.raises(pulumi.RunError, match="the lab is not running"):
        declare(PROJECT / "Pulumi.dev.yaml", preview=False)


def inputs_of(engine: Recorder, kind: str) -> list[dict[str, Any]]:
    return [r.inputs for r in engine.seen if r.type.endswith(kind)]


def test_no_resource_but_kubernetes_and_commands_holds_a_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPU_CLUSTERS_LAB", str(tmp_path))
    engine = declare(PROJECT / "Pulumi.hgx-h100.yaml", preview=False)
    holders = {r.type for r in engine.seen if "made up" in str(r.inputs)}
    assert holders <= {
        "pulumi:providers:kubernetes",
        "command:remote:Command",
        "pulumi-python:dynamic/gpu:TenancyPolicy",
    }
