"""A checkout with the committed stack files, for commands that write into it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpuclusters.cli import engine as engines
from gpuclusters.cli import repair
from gpuclusters.cli.main import main
from gpuclusters.cli.project import Project, Session, Stack, read_valid
from tests.fixtures.keys import quick_keys

ROOT = Path(__file__).resolve().parents[3]
EMBEDDED = engines.Engine(engines.Kind.EMBEDDED, (sys.executable, "-m", "engine"), "a test")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """It has no lab."""
    folder = tmp_path / "project"
    folder.mkdir()
    for path in ROOT.glob("Pulumi.*"):
        shutil.copy(path, folder)
    for name in ("gpuclusters", "__main__.py"):
        (folder / name).symlink_to(ROOT / name)
    return Project(folder, tmp_path / "lab")


@contextmanager
def looping() -> Iterator[Callable[[Awaitable[Any]], Any]]:
    """A loop in a thread of its own, for servers of SSH; gives what runs something in it to its end."""

    async def waited(what: Awaitable[Any]) -> Any:
        return await what

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield lambda what: asyncio.run_coroutine_threadsafe(waited(what), loop).result(120)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """`gpu-clusters WORDS` in a folder, with nothing of Pulumi's or ours in the environment but this."""

    def call(*words: str | Path, at: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            for name in [one for one in os.environ if one.startswith(("PULUMI_", "GPU_CLUSTERS_"))]:
                patch.delenv(name)
            for name, value in {"COLUMNS": "160", "PYTHONPATH": str(ROOT), **env}.items():
                patch.setenv(name, value)
            patch.chdir(at)
            patch.setattr(sys, "argv", ["gpu-clusters", *map(str, words)])
            with pytest.raises(SystemExit) as ended:
                main()
        return subprocess.CompletedProcess(words, int(ended.value.code or 0), *capfd.readouterr())

    return call


def stack_of(project: Project, name: str = "dev", **env: str) -> Stack:
    """A stack whose backend is that of a lab, whatever this process has of Pulumi's."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PULUMI_")}
    keys = quick_keys(project.folder.parent / "keys")
    keys["PYTHONPATH"] += os.pathsep + str(ROOT)
    return Stack(project, name, EMBEDDED, {**project.lab_environment(clean), **keys, **env})


def made(project: Project, name: str = "dev") -> Stack:
    """A stack that is in its backend."""
    (project.lab_folder / "state").mkdir(parents=True)
    stack = stack_of(project, name)
    engine(stack, "stack", "init", "--non-interactive")
    return stack


def engine(stack: Stack, *args: str) -> str:
    """What the engine prints on a command about a stack."""
    done = stack.run(*args, "--stack", stack.stack)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


MANIFEST = {"time": "2026-11-22T10:00:00Z", "magic": "", "version": "v3.272.0"}


class Here:
    """A stack in a backend of its own."""

    def __init__(self, project: Project, stack: str) -> None:
        known = made(project, stack)
        self.session = Session(project, stack, EMBEDDED, known.env, read_valid(project, stack))
        self.state = project.lab_folder / "state" / ".pulumi"
        self.out = io.StringIO()

    def lock(self, **content: Any) -> Path:
        folder = self.state / "locks/organization/gpu-clusters" / self.session.stack
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{len(list(folder.iterdir()))}.json"
        holder = {
            "pid": os.getpid(),
            "username": "ann",
            "hostname": socket.gethostname(),
            "timestamp": datetime.now(UTC).isoformat(),
        }
        path.write_text(json.dumps(holder | content))
        return path

    def put(self, resources: list[Mapping[str, Any]], creating: list[Mapping[str, Any]]) -> None:
        """A state as a killed run leaves it."""
        root = self.resource("pulumi:pulumi:Stack", f"gpu-clusters-{self.session.stack}")
        # In the file: an import drops what is pending.
        path = self.state / f"stacks/gpu-clusters/{self.session.stack}.json"
        document = json.loads(path.read_text())
        latest = document["checkpoint"].get("latest") or {}
        beneath = {"parent": root["urn"]}
        latest["resources"] = [root | {"custom": False}, *(beneath | one for one in resources)]
        latest["pending_operations"] = [
            {"type": "creating", "resource": beneath | one} for one in creating
        ]
        document["checkpoint"]["latest"] = {"manifest": MANIFEST, **latest}
        path.write_text(json.dumps(document))

    def pending(self) -> set[str]:
        document = json.loads(engine(self.session, "stack", "export"))
        found = document["deployment"].get("pending_operations") or []
        return {one["resource"]["urn"].rsplit("::", 1)[-1] for one in found}

    def resource(self, kind: str, name: str, **more: Any) -> dict[str, Any]:
        urn = f"urn:pulumi:{self.session.stack}::gpu-clusters::{kind}::{name}"
        return {"urn": urn, "custom": True, "type": kind, **more}

    def repair(self, *, asked_for: bool = False) -> str:
        console = Console(file=self.out, width=300, highlight=False)
        repair.repair(self.session, console, asked_for=asked_for)
        return self.out.getvalue()
