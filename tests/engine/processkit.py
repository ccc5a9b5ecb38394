"""The engine as a command with real processes: a project, its program, what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.backend import checkpoints
from engine.backend.filebackend import FileBackend
from engine.backend.layout import StackReference
from engine.secrets import SecretsManager
from tests.engine.shellkit import command_in
from tests.fixtures.keys import quick_keys
from tests.fixtures.tables import beside
from tests.fixtures.waiting import eventually

DEV = StackReference("proc", "dev")

SALT = "v1:ip2XVbLTazw=:v1:32uGEF6AxQjTh976:VJ3lV7gQnrx2m+Hm9kPQkyTAE+dvPw=="
"""Of the passphrase `test`: with a salt of their own, each stack would have to derive a key."""

ODDITY = Path(__file__).with_name("oddity")
"""A folder for PATH with a plugin that answers nonsense."""

PROGRAMS = beside(__file__, "programs.yaml")


class Engine:
    """A project in a temporary folder, and the engine on it.

    With a warm Python for programs it runs in this process, otherwise as a user starts it.
    """

    def __init__(self, root: Path, warm: Path | None = None) -> None:
        self._here = warm is not None
        self.folder = root / "project"
        self.world = root / "world"
        for folder in (self.folder, self.world, root / "state"):
            folder.mkdir()
        (self.folder / "Pulumi.yaml").write_text("name: proc\nruntime: python\n")
        (self.folder / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {SALT}\n")
        for module in ("things", "odd"):
            (self.folder / f"{module}.py").write_text(PROGRAMS[module])
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("PULUMI_")} | {
            "PULUMI_BACKEND_URL": f"file://{root / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": "test",
            "PULUMI_HOME": str(root / "home"),
            "PULUMI_PYTHON_CMD": str(warm or sys.executable),
            "WORLD": str(self.world),
            **quick_keys(root.parent / "keys"),
        }
        # The plugin needs the SDK: its `python3` is that of the tests.
        python = Path(self.env["PULUMI_PYTHON_CMD"]).parent
        self.env["PATH"] = os.pathsep.join([str(ODDITY), str(python), self.env["PATH"]])
        self.backend = FileBackend(root / "state")
        self.backend.prepare()
        keys = SecretsManager(SALT, lambda: "test")
        self.backend.create(DEV, checkpoints.empty_deployment(keys))

    def program(self, text: str) -> None:
        (self.folder / "__main__.py").write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "engine", *arguments],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, expect: int = 0) -> str:
        if self._here:
            done = command_in(self.folder, self.env, arguments)
            code, output = done.code, done.out + done.err
        else:
            process = self.start(*arguments)
            output, _ = process.communicate(timeout=120)
            code = process.returncode
        assert code == expect, output
        return output

    def start_up(self) -> subprocess.Popen[str]:
        return self.start("up", "--yes", "--skip-preview", "--stack", "dev")

    def up(self, expect: int = 0) -> str:
        return self.run("up", "--yes", "--skip-preview", "--stack", "dev", expect=expect)

    def names(self) -> list[str]:
        return [r["urn"].split("::")[-1] for r in self.state().get("resources", [])]

    def state(self) -> dict[str, Any]:
        document = json.loads(self.backend.bucket.read(DEV.checkpoint))
        deployment: dict[str, Any] = document["checkpoint"]["latest"]
        return deployment

    def resources(self) -> dict[str, dict[str, Any]]:
        return {r["urn"]: r for r in self.state().get("resources", [])}

    def interrupt(self, process: subprocess.Popen[str], times: int = 1) -> str:
        """Send Ctrl-C, each time after the one before was noticed; gives what is then said."""
        assert process.stdout is not None
        for number in range(times):
            if number:
                while not process.stdout.readline().startswith("^C received"):
                    assert process.poll() is None
            process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 8, output
        assert self.processes() == []
        return output

    def wait_for(self, name: str) -> None:
        eventually((self.world / name).exists, name, 120)

    def processes(self) -> list[int]:
        return processes(f"WORLD={self.world}")

    def end(self) -> None:
        """End whatever is left."""
        end_processes(f"WORLD={self.world}")


def processes(variable: str) -> list[int]:
    """Processes that were started with this in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def end_processes(variable: str) -> None:
    for pid in processes(variable):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def engine(tmp_path: Path, warm: Path) -> Iterator[Engine]:
    made = Engine(tmp_path, warm)
    yield made
    made.end()


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[Engine]:
    """With processes as a user starts them."""
    made = Engine(tmp_path)
    yield made
    made.end()
