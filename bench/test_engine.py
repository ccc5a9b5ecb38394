"""What the embedded engine costs; ratios within one run.

Nothing here passes or fails by time. `make bench` prints the tables. Beside the engine stands the
SDK alone, registering the same resources under mocks. `GPU_CLUSTERS_BENCH` says how many resources
(2,000), `GPU_CLUSTERS_BENCH_MANY` how many in the table of memory (10,000).
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.showing import show

pytestmark = [pytest.mark.timeout(3600)]

HERE = Path(__file__).parent
ROOT = HERE.parent
COUNT = int(os.environ.get("GPU_CLUSTERS_BENCH", "2000"))
MANY = int(os.environ.get("GPU_CLUSTERS_BENCH_MANY", "10000"))
SLOW_SECONDS = 1.0
SLOW_CALLS = 100


@dataclasses.dataclass(frozen=True)
class Taken:
    """What one command took.

    Memory, bytes and the first CPU time are those of the engine alone, the second that of program
    and providers.
    """

    seconds: float
    first_step_seconds: float
    cpu_seconds: float
    others_cpu_seconds: float
    peak_bytes: int
    written_bytes: int

    def row(self, name: str, alone: tuple[float, float]) -> str:
        """A line of a table; `alone` are seconds and CPU time of the SDK alone."""
        cpu = self.cpu_seconds + self.others_cpu_seconds
        return (
            f"{name:28}{self.seconds:8.2f} ×{self.seconds / alone[0]:5.1f}{cpu:9.2f}"
            f" ×{cpu / alone[1]:5.1f}{self.cpu_seconds:9.2f}{self.written_bytes / 1e6:10.2f}"
            f"{self.peak_bytes / 1e6:9.0f}"
        )


def head(alone: tuple[float, float]) -> list[str]:
    """The first lines of a table."""
    return [
        f"{'':28}{'seconds':>8}  ratio  CPU (s)  ratio   engine  MB writ.  MB peak",
        f"{'SDK alone, under mocks':28}{alone[0]:8.2f} ×{1.0:5.1f}{alone[1]:9.2f} ×{1.0:5.1f}",
    ]


class Project:
    """A project of many resources in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "many"
        self._measured = root / "measured.json"
        shutil.copytree(HERE / "many", self.folder, ignore=shutil.ignore_patterns("__pycache__"))
        (root / "state").mkdir()
        plugins = ROOT / "tests" / "engine" / "oddity"
        self._env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("PULUMI_")},
            "PULUMI_BACKEND_URL": f"file://{root / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PYTHONPATH": str(ROOT),
            "PATH": os.pathsep.join(
                [str(plugins), str(Path(sys.executable).parent), os.environ["PATH"]]
            ),
        }
        self.run("stack", "init")

    def configure(self, **values: object) -> None:
        for key, value in values.items():
            self.run("config", "set", key, str(value))

    def run(self, *arguments: str) -> Taken:
        command = [sys.executable, str(HERE / "measured.py"), str(self._measured), *arguments]
        begin = time.perf_counter()
        first = 0.0
        process = subprocess.Popen(
            [*command, "--stack", "dev"],
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        last: list[str] = []
        for line in process.stdout:
            if not first and '"resourcePreEvent"' in line:
                first = time.perf_counter() - begin
            last = [*last[-20:], line]
        assert process.wait() == 0, "".join(last)
        seconds = time.perf_counter() - begin
        return Taken(seconds, first, **json.loads(self._measured.read_text()))

    def alone(self, count: int) -> tuple[float, float]:
        """Seconds that the SDK takes for the registrations alone, and of a processor."""
        seconds, cpu = self._python(str(HERE / "alone.py"), str(count)).splitlines()[-1].split()
        return float(seconds), float(cpu)

    def imports(self) -> float:
        """Seconds that the program takes to import what it imports."""
        begin = time.perf_counter()
        self._python("-c", "import things")
        return time.perf_counter() - begin

    def _python(self, *arguments: str) -> str:
        env = {**self._env, "PYTHONPATH": f"{self.folder}{os.pathsep}{ROOT}"}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        ).stdout


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


UP = ("up", "--yes", "--skip-preview")


def test_the_cost_of_a_run(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.configure(count=COUNT)
    base = project.alone(COUNT)
    runs = [
        ("create", project.run(*UP)),
        ("nothing changes", project.run(*UP)),
        ("preview, nothing changes", project.run("preview")),
        ("refresh", project.run("refresh", "--yes", "--skip-preview")),
        ("destroy", project.run("destroy", "--yes", "--skip-preview")),
    ]
    rows = [*head(base), *(taken.row(name, base) for name, taken in runs)]
    show(capsys, f"{COUNT} dynamic resources; bytes and memory are the engine's", rows)


def test_bytes_written_grow_with_resources(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{'resources':>10}{'MB written':>12}{'kB each':>9}{'seconds':>9}{'ms each':>9}"]
    for count in (COUNT // 8, COUNT // 4, COUNT // 2):
        project.configure(count=count)
        taken = project.run(*UP)
        project.run("destroy", "--yes", "--skip-preview")
        rows.append(
            f"{count:10d}{taken.written_bytes / 1e6:12.2f}{taken.written_bytes / 1e3 / count:9.2f}"
            f"{taken.seconds:9.2f}{taken.seconds * 1e3 / count:9.2f}"
        )
    show(capsys, "Creates: what grows with their number", rows)


def test_memory_for_many_resources(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.configure(count=MANY)
    created = project.run(*UP)
    again = project.run(*UP)
    base = project.alone(MANY)
    rows = [*head(base), created.row("create", base), again.row("nothing changes", base)]
    show(capsys, f"{MANY} dynamic resources", rows)


def test_slow_providers_are_limited_only_by_parallel(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.configure(count=0, slow=SLOW_CALLS)
    rows = [f"{'--parallel':>10}{'seconds':>9}{'at least':>10}"]
    for parallel in (10, 50, 100):
        taken = project.run(*UP, "--parallel", str(parallel))
        project.run("destroy", "--yes", "--skip-preview")
        least = SLOW_CALLS / parallel * SLOW_SECONDS
        rows.append(f"{parallel:10d}{taken.seconds:9.2f}{least:10.2f}")
    show(capsys, f"{SLOW_CALLS} creates that take {SLOW_SECONDS:.0f} s each", rows)


def test_the_first_step_comes_soon(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.configure(count=1)
    rounds = range(5)
    imports = min(project.imports() for _ in rounds)
    first = min(project.run(*UP, "--json").first_step_seconds for _ in rounds)
    rows = [
        f"first step after {first:.2f} s, of which the program's own imports {imports:.2f} s:"
        f" {first - imports:.2f} s are the engine's"
    ]
    show(capsys, "Start", rows)
