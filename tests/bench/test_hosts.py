"""What a change on all machines takes, and what a preview of a fleet takes; ratios within one run.

Nothing here passes or fails by time. `make bench` prints the tables. The machines are simulated by one
process of this computer, with every command held back by a fixed time, as a network and a busy machine
would: with the commands' own work subtracted, the wall time of a change should be that of one machine.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.hosts import faults, journal
from tests.bench.showing import show
from tests.fixtures.hosts import SimulatedHost

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MACHINES = (1, 10, 100)
LATENCY_SECONDS = 0.05
FLEETS = (10, 50, 100)


@dataclass(frozen=True)
class Project:
    """A project in a folder of its own, run by the embedded engine."""

    folder: Path
    env: Mapping[str, str]

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "lab.engine", *arguments, "--stack", "dev"],
            cwd=self.folder,
            env=dict(self.env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def timed(self, *arguments: str) -> tuple[float, str]:
        begin = time.perf_counter()
        said = self.run(*arguments)
        return time.perf_counter() - begin, said


def configure(path: Path, values: Mapping[str, Any]) -> None:
    """Give a stack file these keys and keep what else it says."""
    known = yaml.safe_load(path.read_text()) if path.exists() else {}
    texts = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
    }
    path.write_text(yaml.safe_dump({**known, "config": texts}))


def project(root: Path, source: Path, env: Mapping[str, str]) -> Project:
    (root / "state").mkdir(parents=True)
    shutil.copytree(source, root / "project", ignore=shutil.ignore_patterns("__pycache__"))
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PULUMI_")}
    return Project(
        root / "project",
        {
            **clean,
            "PULUMI_BACKEND_URL": f"file://{root / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PYTHONPATH": str(ROOT),
            **env,
        },
    )


def test_a_change_of_the_layout_takes_as_long_as_one_machine(
    hosts: Callable[..., list[SimulatedHost]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fleet = hosts(max(MACHINES))
    rows = [f"{'machines':>9}{'seconds':>9}{'ratio':>7}{'held back':>11}{'commands each':>15}"]
    first = 0.0
    for count in MACHINES:
        used = fleet[:count]
        boards = project(
            tmp_path / str(count),
            HERE / "boards",
            {"GPU_CLUSTERS_SSH_KEY_FILE": str(used[0].client_key)},
        )
        boards.run("stack", "init")
        key = "boards:partitions"
        stack = {"boards:hosts": [host.connection for host in used], key: [1, 2]}
        path = boards.folder / "Pulumi.dev.yaml"
        configure(path, stack)
        boards.run("up", "--yes", "--skip-preview", "--parallel", "100")
        for host in used:
            journal.clear(host.folder, host.name)
            faults.inject(host.folder, host.name, faults.Slow(seconds=LATENCY_SECONDS))
        nothing, _ = boards.timed("up", "--yes", "--skip-preview", "--parallel", "100")
        configure(path, {**stack, key: [3, 4, 5, 6]})
        taken, _ = boards.timed("up", "--yes", "--skip-preview", "--parallel", "100")
        each = max(len(journal.commands(host.folder, host.name)) for host in used)
        change = taken - nothing
        first = first or change
        rows.append(
            f"{count:9d}{change:9.2f}{change / first:7.1f}{each * LATENCY_SECONDS:11.2f}{each:15d}"
        )
        for host in used:
            faults.clear(host.folder, host.name)
    show(capsys, f"Another layout, every command {LATENCY_SECONDS * 1e3:.0f} ms late", rows)


def test_a_preview_grows_with_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = yaml.safe_load((ROOT / "Pulumi.hgx-h100.yaml").read_text())["config"]
    rows = [f"{'machines':>9}{'seconds':>9}{'without':>9}{'resources':>11}{'each':>6}"]
    measured: list[tuple[int, float]] = []
    for count in (1, *FLEETS):
        stack = fleet_stack(example, count)
        made = project(tmp_path / str(count), ROOT / "tests" / "bench" / "fleet", {})
        for name in (
            "Pulumi.yaml",
            "__main__.py",
            "stacks",
            "components",
            "gpuclusters",
            "scripts",
        ):
            (made.folder / name).unlink(missing_ok=True)
            (made.folder / name).symlink_to(ROOT / name)
        made.run("stack", "init")
        configure(made.folder / "Pulumi.dev.yaml", stack)
        for secret in SECRETS:
            made.run("config", "set", "--secret", secret, "made up")
        seconds, said = made.timed("preview", "--json")
        steps = [step for step in json.loads(said)["steps"] if step["op"] == "create"]
        measured.append((count, seconds))
        ours = (seconds - measured[0][1]) / count
        rows.append(
            f"{count:9d}{seconds:9.2f}{ours:9.3f}{len(steps):11d}"
            f"{sum('hgx-01' in step['urn'] for step in steps):6d}"
        )
    (few, short), (many, long) = measured[1], measured[-1]
    base = measured[0][1]
    exponent = math.log((long - base) / (short - base)) / math.log(many / few)
    rows.append(f"exponent from {few} to {many} machines, beyond one machine's: {exponent:.2f}")
    show(capsys, "Preview of a fleet", rows)


SECRETS = (
    "gpu-clusters:kubeconfig",
    "gpu-clusters:ssh-private-key",
    "gpu-clusters:bmc-password",
)


def fleet_stack(example: dict[str, Any], count: int) -> dict[str, Any]:
    """The example with its first machines only."""
    section = example["gpu-clusters:caas"]
    names = {node["name"] for node in section["nodes"][:count]}
    cut = {
        **section,
        "nodes": section["nodes"][:count],
        "hosts": {
            **section["hosts"],
            "machines": [m for m in section["hosts"]["machines"] if m["name"] in names],
        },
        "tenants": [],
    }
    return {**example, "gpu-clusters:caas": cut}
