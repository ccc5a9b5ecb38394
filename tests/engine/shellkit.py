"""A project with a backend in a temporary folder, and the command run in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from unittest import mock

import pytest

from engine import deployment, secrets
from engine.cli.main import build, main
from engine.events import Cancel, Event, Prelude, Summary
from engine.request import Cancellation, Outcome, Request, SnapshotStore
from engine.state import ResourceState, Snapshot
from tests.fixtures.tables import beside

COMMANDS = beside(__file__, "commands.yaml")
PROJECT = """\
name: refs
runtime: python
config:
  greeting: {type: string, default: hello}
"""

whole = functools.cache(build)
"""The parser of all commands: making it is most of what a short command costs."""


@dataclasses.dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> object:
        return json.loads(self.out)


class Shell:
    """Runs commands in the folder of a project."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "project"
        self.state = root / "state"

    def __call__(self, *arguments: str) -> Done:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
        return Done(code, out.getvalue(), err.getvalue())

    def ok(self, *arguments: str) -> Done:
        done = self(*arguments)
        assert done.code == 0, done
        return done

    @property
    def stack_file(self) -> Path:
        return self.folder / "Pulumi.dev.yaml"

    @property
    def checkpoint(self) -> Path:
        return self.state / ".pulumi/stacks/refs/dev.json"

    def files(self, pattern: str) -> list[str]:
        return sorted(
            str(p.relative_to(self.state / ".pulumi"))
            for p in (self.state / ".pulumi").glob(pattern)
        )


def command_in(folder: Path, env: Mapping[str, str], arguments: Sequence[str]) -> Done:
    """A command with this folder and environment, as if it were a process."""
    with (
        mock.patch.dict(os.environ, env, clear=True),
        mock.patch("engine.cli.main.build", whole),
        contextlib.chdir(folder),
    ):
        return Shell(folder)(*arguments)


Run = Callable[[Request, SnapshotStore, Callable[[Event], None], Cancellation], Outcome]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """An empty backend, a project, no terminal; keys are derived in no time."""
    made = Shell(tmp_path)
    made.folder.mkdir()
    made.state.mkdir()
    (made.folder / "Pulumi.yaml").write_text(PROJECT)
    for name in ("PULUMI_STACK", "PULUMI_PARALLEL", "PULUMI_CONFIG_PASSPHRASE_FILE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{made.state}")
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "test")
    monkeypatch.setattr("engine.cli.main.build", whole)
    monkeypatch.setattr(secrets, "ITERATIONS", 1)
    secrets._derive.cache_clear()
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    monkeypatch.chdir(made.folder)
    yield made
    secrets._derive.cache_clear()


@pytest.fixture
def dev(shell: Shell) -> Shell:
    """With a stack."""
    shell.ok("stack", "init", "dev")
    return shell


class Recorder:
    """An engine that notes what it is asked, tells `events` and ends as it is told."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.outcome = Outcome(ok=True, changes={})
        self.events: Callable[[bool], Sequence[Event]] = lambda _: ()
        """What happens in a run, or in a preview."""
        self.does: Run | None = None
        """What it does instead."""

    def __call__(self, request, store, emit, cancel) -> Outcome:
        self.requests.append(request)
        if self.does is not None:
            return self.does(request, store, emit, cancel)
        emit(Prelude({}))
        for event in self.events(request.preview):
            emit(event)
        if not request.preview:
            root = "urn:pulumi:dev::refs::pulumi:pulumi:Stack::refs-dev"
            store.save(Snapshot((ResourceState(root, "pulumi:pulumi:Stack", custom=False),)))
        emit(Summary(self.outcome.changes, "succeeded", 1, is_preview=request.preview))
        emit(Cancel())
        return self.outcome


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """In the place of the engine."""
    recorder = Recorder()
    monkeypatch.setattr(deployment, "run", recorder)
    return recorder
