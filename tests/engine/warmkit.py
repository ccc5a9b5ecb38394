"""Commands that start from processes which have imported everything: see `warm/server.py`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.fixtures.keys import quick_keys

_CODE = Path(__file__).with_name("warm")
_ROOT = Path(__file__).parents[2]
_ENGINE = (
    *("engine.cli.main", "engine.deployment", "engine.display.base"),
    *("engine.cli.runs", "engine.display.lines", "engine.backend.filebackend"),
    *("engine.display.digest", "engine.display.eventlines", "grpc._channel", "grpc._server"),
    *("grpc._utilities", "cryptography.hazmat.primitives.ciphers.aead", "pwd"),
)
_PROGRAM = ("pulumi", "pulumi.dynamic", "asyncio", "runpy", "json", "grpc._channel", "grpc._server")
_PROJECT = (*_PROGRAM, "stacks.caas", "stacks.rke2", "stacks.usernetes")
_STAND_INS = ("kubernetes", "command")
_CLI = ("gpuclusters.cli.main", "gpuclusters.cli.drift_look", "gpuclusters.cli.verify")


@dataclasses.dataclass(frozen=True)
class Warm:
    """Commands: `engine` stands for `python -m engine`, `python` for the Python of programs."""

    engine: Path
    python: Path


@dataclasses.dataclass(frozen=True)
class WarmProject(Warm):
    """With `cli` for `python -m gpuclusters.cli`; `python` knows the stacks too."""

    cli: Path
    plugins: Path
    """A folder for PATH with the stand-ins for provider plugins."""

    @property
    def variables(self) -> dict[str, str]:
        """For commands that start the program of a stack."""
        path = os.pathsep.join((str(self.plugins), os.environ["PATH"]))
        return {"PULUMI_PYTHON_CMD": str(self.python), "PATH": path}


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="warm-"))  # a short path: it is that of a socket
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def warm_project() -> Iterator[WarmProject]:
    """Commands for one checkout, until the end of the context.

    What they start of the lab (hosts, control plane, engines) are processes like any.
    """
    with _folder() as folder, contextlib.ExitStack() as servers:
        plugins = folder / "plugins"
        plugins.mkdir()
        made = WarmProject(folder / "engine", folder / "python", folder / "cli", plugins)
        _write(made.python, f"{folder}/python.socket")
        _write(made.engine, f"{folder}/engine.socket -m engine")
        _write(made.cli, f"{folder}/cli.socket -m gpuclusters.cli")
        modules = [f"engine.stand_ins.{name}" for name in _STAND_INS]
        for name, module in zip(_STAND_INS, modules, strict=True):
            _write(plugins / f"pulumi-resource-{name}", f"{folder}/plugins.socket -P -m {module}")
        servers.enter_context(_served(folder, "python.socket", _PROJECT))
        servers.enter_context(_served(folder, "engine.socket", _ENGINE))
        servers.enter_context(_served(folder, "cli.socket", _CLI))
        providers = tuple(f"{module}.provider" for module in modules)
        servers.enter_context(_served(folder, "plugins.socket", providers))
        yield made


@contextlib.contextmanager
def warm_python(*modules: str) -> Iterator[Path]:
    """A Python that has imported these, until the end of the context."""
    with _folder() as folder, _served(folder, "python.socket", modules):
        _write(folder / "python", f"{folder}/python.socket")
        yield folder / "python"


@contextlib.contextmanager
def warm_engine() -> Iterator[Warm]:
    """Commands that work until the end of the context."""
    with _folder() as folder, contextlib.ExitStack() as servers:
        # Plugins in Python find theirs by that name on PATH.
        (folder / "bin").mkdir()
        made = Warm(folder / "engine", folder / "bin" / "python3")
        _write(made.python, f"{folder}/python.socket")
        _write(made.engine, f"{folder}/engine.socket -m engine", made.python)
        servers.enter_context(_served(folder, "python.socket", _PROGRAM))
        servers.enter_context(_served(folder, "engine.socket", _ENGINE))
        yield made


def _write(file: Path, arguments: str, python: Path | None = None) -> None:
    variable = f'PULUMI_PYTHON_CMD={python} PATH="{python.parent}:$PATH" ' if python else ""
    client = f"{sys.executable} -IS {_CODE / 'client.py'}"
    file.write_text(f'#!/bin/sh\n{variable}exec {client} {arguments} "$@"\n')
    file.chmod(0o700)


@contextlib.contextmanager
def _served(folder: Path, name: str, modules: tuple[str, ...]) -> Iterator[None]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PULUMI_")}
    keys = quick_keys(folder / "keys")
    server = subprocess.Popen(
        [sys.executable, str(_CODE / "server.py"), str(folder / name), *modules],
        cwd=_ROOT,
        env={
            **environment,
            **keys,
            "PYTHONPATH": os.pathsep.join((keys["PYTHONPATH"], str(_ROOT))),
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == b"ready\n"
        yield
    finally:
        server.stdin.close()
        server.wait(120)
        server.stdout.close()
