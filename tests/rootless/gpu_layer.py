"""What a machine with GPUs has: NVIDIA's container toolkit, real and of a pinned version, over a driver whose
library of management is a stand-in."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.gpu_operator import toolkit
from lab.tools.go_program import module_folder

HERE = Path(__file__).parent
MODULE = "github.com/NVIDIA/nvidia-container-toolkit"
DRIVER = "580.178.04"
LIBRARIES = ("libnvidia-ml", "libcuda", "libnvidia-ptxjitcompiler")
NODES = (
    *((f"nvidia{n}", 195, n) for n in range(3)),
    *(("nvidia-modeset", 195, 254), ("nvidiactl", 195, 255)),
    *(("nvidia-uvm", 234, 0), ("nvidia-uvm-tools", 234, 1)),
)
"""Device nodes of three GPUs: name, major and minor number."""
CONTROL = {f"/dev/{name}" for name, _, _ in NODES[3:]}
*UUIDS, OTHER = (f"GPU-{n * 8}-{n * 4}-{n * 4}-{n * 4}-{n * 12}" for n in "1234")
"""Of these three, and of one that is in another machine."""
LIBRARY_FOLDER = "usr/lib/x86_64-linux-gnu"


def lay(folder: Path, version: str, uuids: Sequence[str] = ()) -> None:
    """The files of toolkit and driver; skips, with the reason, where they cannot be made.

    Args:
        folder: an empty one; paths in it are those of the machine.
        version: of the toolkit, one that `toolkit_programs` pins.
        uuids: GPUs of the driver where GPU_UUIDS in the environment names no others.
    """
    for name in ("usr/bin", "etc/systemd/system"):
        (folder / name).mkdir(parents=True)
    if shutil.which("gcc") is None:
        pytest.skip("gcc, which builds the stand-in of NVML, is not installed here")
    _compiled(HERE / "nvidia_smi.c", folder / "usr/bin/nvidia-smi")
    libraries(folder, uuids)
    for name in toolkit.NAMES:
        program = toolkit.program(name, version).built(print)
        shutil.copy2(program, folder / "usr/bin" / name)
    units = module_folder(toolkit.SOURCES / version, MODULE, print) / "deployments/systemd"
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


def libraries(folder: Path, uuids: Sequence[str]) -> None:
    """The libraries of a driver, under its root."""
    place = folder / LIBRARY_FOLDER
    place.mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES:
        made = place / f"{name}.so.{DRIVER}"
        library(name, made, uuids)
        made.with_name(f"{name}.so.1").symlink_to(made.name)


def _compiled(source: Path, to: Path, *options: str) -> None:
    warnings = ("-Wall", "-Wextra", "-Werror")
    subprocess.run(["gcc", *warnings, *options, "-o", to, source, "-ldl"], check=True)
