"""The product alone, as `pip install gpu-clusters` brings it: no lab, no engine, no tests."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(
    *("lab", "engine", "tests", "build", "dist", "__pycache__", ".*", "node_modules")
)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel brings, made of a checkout that has nothing else."""
    folder = tmp_path_factory.mktemp("alone")
    shutil.copytree(ROOT, folder / "checkout", ignore=LEFT_OUT)
    uv = [Path(sys.executable).with_name("uv"), "pip", "install", "--python", sys.executable]
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    done = subprocess.run(
        [*uv, *offline, "--target", folder / "installed", "."],
        cwd=folder / "checkout",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (folder / "locked").mkdir()
    for package in Path(site.getsitepackages()[0]).iterdir():
        if not package.name.startswith("gpu_clusters"):
            (folder / "locked" / package.name).symlink_to(package)
    return folder


def python(alone: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the wheel and the locked packages; -S keeps those of this checkout away."""
    path = os.pathsep.join(str(alone / folder) for folder in ("installed", "locked"))
    return subprocess.run(
        [sys.executable, "-S", "-P", *words],
        cwd=alone / "checkout",
        env={**os.environ, "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_version_stands_in_one_place(alone: Path) -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert python(alone, "-m", "gpuclusters.cli", "--version").stdout == f"gpu-clusters {stated}\n"
    assert {metadata.version(f"gpu-clusters{part}") for part in ("", "-engine", "-lab")} == {stated}


def test_programs_import_commands_answer_and_scripts_are_package_data(alone: Path) -> None:
    program = (
        "import stacks.caas, stacks.rke2, stacks.usernetes, gpuclusters.providers.server\n"
        "from gpuclusters.core import scripts\n"
        "from pathlib import Path\n"
        "import components, gpuclusters\n"
        "from gpuclusters.cli.main import app\n"
        "from typer.testing import CliRunner\n"
        "for verb in ('doctor', 'review', 'drift', 'verify', 'explain', 'up', 'lab'):\n"
        "    said = CliRunner().invoke(app, [verb, '--help'], prog_name='gpu-clusters').output\n"
        "    assert f'gpu-clusters {verb}' in said, said\n"
        "print(gpuclusters.__file__)\n"
        "print(len(scripts.read('vfio/vfio_bind.sh')), len(scripts.texts('service_vm')))\n"
        "print(len(list(Path(components.__file__).parent.glob('dashboards/*.json'))))\n"
    )
    done = python(alone, "-c", program)
    assert done.returncode == 0, done.stderr
    where, sizes, dashboards = done.stdout.splitlines()
    assert Path(where).is_relative_to(alone / "installed")
    assert all(int(size) > 10 for size in sizes.split())
    assert dashboards == "3"


def test_a_stack_in_the_lab_says_which_package_is_missing(alone: Path) -> None:
    env = {"GPU_CLUSTERS_OFFLINE": "1", "PATH": "/usr/bin:/bin"}
    done = python(alone, "-m", "gpuclusters.cli", "up", "--stack", "dev", **env)
    assert done.returncode == 2
    assert "pip install gpu-clusters-engine" in done.stderr
    assert "Traceback" not in done.stderr
    done = python(alone, "-m", "gpuclusters.cli", "lab", "status", **env)
    assert done.returncode == 2
    assert "pip install gpu-clusters-lab" in done.stderr
