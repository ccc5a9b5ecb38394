"""Commands that start from processes which have imported everything: see `warm/server.py`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fixtures.keys import quick_keys

_READY = "tests.engine.warm.ready"
_CODE = Path(__file__).with_name("warm")
_ROOT = Path(__file__).parents[2]
_GRPC = ("grpc._channel", "grpc._server", "pwd", "concurrent.futures.thread")
_ENGINE = (
    *("engine.cli.main", "engine.deployment", "engine.display.base", *_GRPC),
    *("engine.cli.runs", "engine.display.lines", "engine.backend.filebackend"),
    *("engine.display.digest", "engine.display.eventlines"),
    "cryptography.hazmat.primitives.ciphers.aead",
)
_PROGRAM = ("pulumi", "pulumi.dynamic", "asyncio", "runpy", "json", *_GRPC)
_HOSTS = (
    *("boot", "cdi", "driver", "preflight", "rke2"),
    *("rootless", "service_vm", "usernetes", "vfio"),
)
_PROJECT = (
    *(*_PROGRAM, "stacks.caas", "stacks.rke2", "stacks.usernetes", "kubernetes"),
    *("gpuclusters.providers.server", "gpuclusters.fabric.manager", "gpuclusters.kube.objects"),
    *(f"gpuclusters.{name}.host" for name in _HOSTS),
    *("gpuclusters.cli.main", "gpuclusters.cli.drift_look", "gpuclusters.cli.verify"),
    *("lab.service", "lab.nodes.process", "lab.control_plane.lifecycle", "lab.kubelet.process"),
    *("lab.gpu_operator.process", "rich._emoji_codes"),
)
_PLACE: Any = {"prefix": "warm-", "ignore_cleanup_errors": True}
_STAND_INS = ("kubernetes", "command")
_OF_STAND_INS = (*_GRPC, "engine.stand_ins.process", "lab.tools.resolver")


@dataclasses.dataclass(frozen=True)
class WarmProject:
    """Commands: `python` for programs, `engine` for `python -m engine`, `cli` for `gpu-clusters`."""

    python: Path
    engine: Path
    cli: Path
    plugins: Path
    """A folder for PATH with the stand-ins for provider plugins."""

    @property
    def variables(self) -> dict[str, str]:
        """For commands that start the program of a stack."""
        path = os.pathsep.join((str(self.plugins), os.environ["PATH"]))
        return {"PULUMI_PYTHON_CMD": str(self.python), "PATH": path}


@contextlib.contextmanager
def warm_project() -> Iterator[WarmProject]:
    """Commands for one checkout, until the end of the context.

    What they start of the lab (hosts, control plane) are processes like any.
    """
    with tempfile.TemporaryDirectory(**_PLACE) as name, contextlib.ExitStack() as servers:
        folder = Path(name)
        plugins = folder / "plugins"
        plugins.mkdir()
        made = WarmProject(folder / "python", folder / "engine", folder / "cli", plugins)
        _write(made.python, f"{folder}/python.socket")
        _write(made.engine, f"{folder}/engine.socket -m engine")
        _write(folder / "for-cli", f"{folder}/engine.socket")
        _write(made.cli, f"{folder}/python.socket -m gpuclusters.cli")
        modules = [f"engine.stand_ins.{name}" for name in _STAND_INS]
        for name, module in zip(_STAND_INS, modules, strict=True):
            _write(plugins / f"pulumi-resource-{name}", f"{folder}/plugins.socket -P -m {module}")
        servers.enter_context(_served(folder, "python.socket", _PROJECT))
        servers.enter_context(_served(folder, "engine.socket", _ENGINE))
        providers = (f"{module}.provider" for module in modules)
        servers.enter_context(_served(folder, "plugins.socket", (*providers, *_OF_STAND_INS)))
        yield made


@contextlib.contextmanager
def warm_python(*modules: str) -> Iterator[Path]:
    """A Python that has imported these, until the end of the context."""
    with tempfile.TemporaryDirectory(**_PLACE) as name:
        # Plugins in Python find theirs by that name on PATH.
        made = Path(name, "bin", "python3")
        made.parent.mkdir()
        _write(made, f"{name}/python.socket")
        with _served(Path(name), "python.socket", modules):
            yield made


def warm_programs() -> contextlib.AbstractContextManager[Path]:
    """A Python for programs and plugins."""
    return warm_python(*_PROGRAM)


def _write(file: Path, arguments: str) -> None:
    client = f"{sys.executable} -IS {_CODE / 'client.py'}"
    file.write_text(f'#!/bin/sh\nexec {client} {arguments} "$@"\n')
    file.chmod(0o700)


@contextlib.contextmanager
def _served(folder: Path, name: str, modules: tuple[str, ...]) -> Iterator[None]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PULUMI_")}
    keys = quick_keys(folder / "keys")
    server = subprocess.Popen(
        [sys.executable, str(_CODE / "server.py"), str(folder / name), *modules, _READY],
        cwd=_ROOT,
        env={
            **environment,
            **keys,
            "PYTHONPATH": os.pathsep.join((keys["PYTHONPATH"], str(_ROOT))),
            "PYTHONHASHSEED": "0",
            "WARM_ENGINE": str(folder / "for-cli"),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert server.stdout.readline() == b"ready\n"
        yield
    finally:
        server.stdin.close()
        server.wait(120)
        server.stdout.close()
