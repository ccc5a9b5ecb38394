"""Programs of NVIDIA's container toolkit, built from the sources that `toolkit_source/go.mod` pins.

They load the driver's library by its name when they run, which Go can only do with a compiler of C. Where
there is none, the toolkit's step on a node is played, and says so.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lab.tools.build import go_environment
from lab.tools.cache import ToolCache
from lab.tools.errors import ToolError
from lab.tools.golang import find_go
from lab.tools.report import Report

VERSION: Final = "1.20.0"
"""Of the release that GPU Operator v26.7.0 brings."""
NAMES: Final = ("nvidia-ctk", "nvidia-container-runtime", "nvidia-cdi-hook")
_MODULE = "github.com/NVIDIA/nvidia-container-toolkit"
_SOURCE = Path(__file__).parent / "toolkit_source"
_LINKED = f"{_MODULE}/internal/info.version={VERSION}"
_BUILD_SECONDS = 900
# Functions of a library that is opened by name are looked for when they are called, not at the start.
_WITH_C = {"CGO_ENABLED": "1", "CGO_LDFLAGS": "-O2 -g -Wl,-z,lazy"}


def ensure(report: Report) -> Mapping[str, Path]:
    """All of them by name, out of the cache or built.

    Raises:
        ToolError: they cannot be had here; one sentence that says why.
    """
    return {name: _program(name, report) for name in NAMES}


def there() -> Mapping[str, Path]:
    """All of them by name, out of the cache alone.

    Raises:
        ToolError: they were not built.
    """
    found = {name: _place(name) for name in NAMES}
    missing = [name for name, program in found.items() if not program.exists()]
    if missing:
        raise ToolError(f"{', '.join(missing)} could not be built")
    return found


def _package(name: str) -> str:
    return f"{_MODULE}/cmd/{name}"


def _place(name: str) -> Path:
    """Where it is kept: under another name when what it is built from changes."""
    digest = hashlib.sha256(f"{_package(name)}  {_LINKED}".encode())
    for file in sorted(_SOURCE.iterdir()):
        digest.update(file.read_bytes())
    return ToolCache().folder / f"{name}-{VERSION}-{digest.hexdigest()[:16]}"


def _program(name: str, report: Report) -> Path:
    program = _place(name)
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    # Not the cache's own lock: a build of this one does not have to wait for that of a kubelet.
    with program.with_name(f".{name}-{VERSION}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            report(f"building {name} {VERSION} from the pinned sources; this is done once")
            _build(ToolCache(), program, _package(name), report)
    return program


def _build(cache: ToolCache, program: Path, package: str, report: Report) -> None:
    if shutil.which("gcc") is None:
        raise ToolError(
            f"{program.name} cannot be built: there is no gcc; install gcc and libc6-dev"
        )
    go = find_go(cache, report, offline=bool(os.environ.get("GPU_CLUSTERS_OFFLINE")))
    with cache.workspace() as folder:
        made = folder / program.name
        command = [
            *(str(go), "build", "-trimpath", "-buildvcs=false"),
            *("-ldflags", f"-s -w -X {_LINKED}", "-o", str(made), package),
        ]
        try:
            done = subprocess.run(
                command, cwd=_SOURCE, capture_output=True, text=True, timeout=_BUILD_SECONDS,
                check=False, env=go_environment(os.environ) | _WITH_C,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ToolError(f"{program.name} was not built in {_BUILD_SECONDS} s") from None
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no output"]
            raise ToolError(f"{program.name} cannot be built: {lines[-1]}")
        made.replace(program)
