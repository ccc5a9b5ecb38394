"""What a machine with GPUs has: NVIDIA's container toolkit, real and of a pinned version, over a driver whose
library of management is a stand-in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.gpu_operator import toolkit
from lab.tools.build import go_environment
from lab.tools.cache import ToolCache
from lab.tools.go_program import BUILD_SECONDS
from lab.tools.golang import find_go

HERE = Path(__file__).parent
MODULE = "github.com/NVIDIA/nvidia-container-toolkit"
DRIVER = "580.178.04"
LIBRARIES = ("libnvidia-ml", "libcuda", "libnvidia-ptxjitcompiler")
LIBRARY_FOLDER = "usr/lib/x86_64-linux-gnu"


def lay(folder: Path, version: str, uuids: Sequence[str] = ()) -> None:
    """The files of toolkit and driver; skips, with the reason, where they cannot be made.

    Args:
        folder: an empty one; paths in it are those of the machine.
        version: of the toolkit, one that `toolkit_programs` pins.
        uuids: GPUs of the driver where GPU_UUIDS in the environment names no others.
    """
    for name in ("usr/bin", LIBRARY_FOLDER, "etc/systemd/system"):
        (folder / name).mkdir(parents=True)
    _lay_driver(folder, uuids)
    for name in toolkit.NAMES:
        program = toolkit.program(name, version).built(print)
        shutil.copy2(program, folder / "usr/bin" / name)
    units = _source(toolkit.SOURCES / version) / "deployments/systemd"
    for unit in units.glob("nvidia-cdi-refresh.*"):
        (folder / "etc/systemd/system" / unit.name).write_text(unit.read_text())
    shutil.copy2(HERE / "systemctl.sh", folder / "usr/bin/systemctl")
    (folder / "usr/bin/systemctl").chmod(0o755)


def library(name: str, to: Path, uuids: Sequence[str]) -> None:
    """One library of a driver that knows these GPUs."""
    _compiled(
        HERE / "nvml.c", to, "-shared", "-fPIC", f"-Wl,-soname,{name}.so.1",
        f'-DGPUS="{",".join(uuids)}"',
    )  # fmt: skip


def _lay_driver(folder: Path, uuids: Sequence[str]) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc, which builds the stand-in of NVML, is not installed here")
    _compiled(HERE / "nvidia_smi.c", folder / "usr/bin/nvidia-smi")
    for name in LIBRARIES:
        made = folder / LIBRARY_FOLDER / f"{name}.so.{DRIVER}"
        library(name, made, uuids)
        made.with_name(f"{name}.so.1").symlink_to(made.name)


def _compiled(source: Path, to: Path, *options: str) -> None:
    warnings = ("-Wall", "-Wextra", "-Werror")
    subprocess.run(["gcc", *warnings, *options, "-o", to, source, "-ldl"], check=True)


def _source(pinned: Path) -> Path:
    """The folder of the toolkit's sources, which have its units of systemd."""
    go = find_go(ToolCache(), print, offline=bool(os.environ.get("GPU_CLUSTERS_OFFLINE")))
    done = subprocess.run(
        [go, "mod", "download", "-json", MODULE],
        cwd=pinned,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS,
        env=go_environment(os.environ),
    )
    if done.returncode:
        reason = done.stderr.strip() or done.stdout.strip()
        pytest.skip(f"the sources of NVIDIA's container toolkit cannot be had here: {reason}")
    return Path(json.loads(done.stdout)["Dir"])
