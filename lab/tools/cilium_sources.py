"""Cilium's sources in C, which its agent compiles at run time: out of the module that it is built from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from lab.tools.build import MODULES, go_environment
from lab.tools.cache import ToolCache
from lab.tools.cilium_programs import CILIUM_VERSION, MODULE
from lab.tools.golang import find_go
from lab.tools.model import Report, ToolError

_SECONDS = 300
_NOT_NEEDED = ("tests", "complexity-tests", "test-progs")


def kept() -> Path:
    """Where they are once they were fetched."""
    return ToolCache().folder / f"cilium-sources-{CILIUM_VERSION}"


def cilium_sources(report: Report) -> Path:
    """The folder with them, out of the cache or fetched now.

    Raises:
        ToolError: they cannot be had; one sentence that says why.
    """
    folder = kept()
    if not folder.exists():
        with ToolCache().lock(report):
            # Another process may have fetched them while this one waited.
            if not folder.exists():
                _copy(_module(report), folder)
    return folder


def _module(report: Report) -> Path:
    """The folder of the module, its sum compared with that of go.sum."""
    offline = os.environ.get("GPU_CLUSTERS_OFFLINE", "") not in ("", "0")
    go = find_go(ToolCache(), report, offline=offline)
    done = subprocess.run(
        [go, "mod", "download", "-json", MODULE],
        cwd=MODULES / "cilium",
        env=go_environment(os.environ),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    found = json.loads(done.stdout or "{}")
    if done.returncode != 0 or found.get("Error"):
        words = found.get("Error") or done.stderr.strip()
        raise ToolError(
            f"the sources of Cilium cannot be fetched ({words}); check GOPROXY (`go env GOPROXY`)"
        )
    return Path(found["Dir"])


def _copy(module: Path, folder: Path) -> None:
    with ToolCache().workspace() as made:
        source, target = module / "bpf", made / folder.name
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*_NOT_NEEDED))
        # In Go's cache nothing may be written, and what is copied from here is to be removed some day.
        for path in [target, *target.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        target.rename(folder)
