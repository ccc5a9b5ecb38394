"""Each flag of `preview`, `up`, `refresh` and `destroy` changes something that can be seen."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Iterator

import pytest

from engine.events import (
    Diagnostic,
    Event,
    ResourceOutputs,
    ResourcePre,
    StepMetadata,
)
from engine.request import Outcome
from engine.state import PendingOperation, ResourceState, Snapshot
from engine.values import Secret
from tests.engine.shellkit import COMMANDS, Recorder, Shell, dev, engine, shell

__all__ = ["dev", "engine", "shell"]

ROOT = "urn:pulumi:dev::refs::pulumi:pulumi:Stack::refs-dev"
ONE, TWO, THREE = (f"urn:pulumi:dev::refs::a:b:C::{name}" for name in ("one", "two", "three"))
OUTPUTS = {"key": Secret("hunter22"), "long": "x" * 300}


def _resource(urn: str, **more: object) -> ResourceState:
    return ResourceState(urn, "a:b:C", custom=True, id="i", parent=ROOT, **more)  # type: ignore[arg-type]


def _events(preview: bool) -> Iterator[Event]:
    """A step of each kind, and messages."""
    root = ResourceState(ROOT, "pulumi:pulumi:Stack", custom=False, outputs=OUTPUTS)
    yield Diagnostic("debug", "only for developers\n")
    yield Diagnostic("warning", "mind this\n", prefix="warning: ")
    for op, urn, logical in (
        ("same", ROOT, True), ("same", ONE, True), ("update", TWO, True),
        ("create-replacement", THREE, False), ("replace", THREE, True),
    ):  # fmt: skip
        state = root if urn == ROOT else _resource(urn, inputs={"text": "y" * 300})
        old = dataclasses.replace(state, inputs={"text": "z"}, outputs={})
        step = StepMetadata(op, urn, state.type, "", old, state, logical=logical)
        yield ResourcePre(step, preview)
        yield ResourceOutputs(step, preview)


@pytest.fixture
def playing(
    dev: Shell, engine: Recorder, monkeypatch: pytest.MonkeyPatch
) -> tuple[Shell, Recorder]:
    """A stack with resources and a create that was cut off, an engine that plays, no clock."""
    shell = dev
    shell.ok("stack", "init", "other", "--no-select")
    shell.ok("config", "set", "name", "value")
    (shell.folder / "elsewhere.yaml").write_text("config:\n  refs:name: elsewhere\n")
    (shell.root / "nested").mkdir()
    (shell.root / "nested/Pulumi.yaml").write_text("name: refs\nruntime: python\n")
    checkpoint = json.loads(shell.checkpoint.read_text())
    snapshot = Snapshot(
        (ResourceState(ROOT, "pulumi:pulumi:Stack", custom=False), _resource(ONE, protect=True),
         _resource(TWO)),
        (PendingOperation(_resource(THREE), "creating"),),
    )  # fmt: skip
    checkpoint["checkpoint"]["latest"] |= {
        key: value
        for key, value in snapshot.to_checkpoint(str).items()
        if key in ("resources", "pending_operations")
    }
    shell.checkpoint.write_text(json.dumps(checkpoint))
    engine.events = lambda preview: list(_events(preview))
    engine.outcome = Outcome(ok=True, changes={"same": 2, "replace": 1})
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    return shell, engine


def _seen(playing: tuple[Shell, Recorder], command: str) -> object:
    """All that a user can see of a command and what the engine was asked."""
    shell, engine = playing
    engine.requests.clear()
    done = shell(*command.split())
    asked = [dataclasses.replace(r, project=None) for r in engine.requests]  # type: ignore[arg-type]
    folders = [str(r.project.folder) for r in engine.requests]
    history = [
        (record["message"], record["config"])
        for file in sorted((shell.state / ".pulumi/history").rglob("*.history.json"))
        for record in [json.loads(file.read_text())]
    ]
    files = {p.name: p.read_text() for p in shell.folder.glob("*")}
    text = re.sub(r"\d{4} [\d:.]{15} \d+", "<now>", done.out + done.err)
    return done.code, text, asked, folders, history[-1:], files, shell.checkpoint.exists()


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (command.replace("ONE", ONE), flag.replace("ONE", ONE))
        for command, flags in COMMANDS["effects"].items()
        for flag in flags.split(", ")
    ],
)
def test_a_flag_makes_a_difference(
    playing: tuple[Shell, Recorder], command: str, flag: str
) -> None:
    without = _seen(playing, command)
    assert _seen(playing, command) == without, "what is compared varies by itself"
    assert _seen(playing, f"{command} {flag}") != without


@pytest.mark.parametrize(("variable", "value", "command"), COMMANDS["variables"])
def test_a_variable_makes_a_difference(
    playing: tuple[Shell, Recorder],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    command: str,
) -> None:
    without = _seen(playing, command)
    monkeypatch.setenv(variable, value)
    if variable.endswith("_FILE"):
        monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
        command = "stack init third"
    assert _seen(playing, command) != without
