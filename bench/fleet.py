"""The example stack with as many of its machines as wanted, in a folder of its own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
import yaml

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "Pulumi.hgx-h100.yaml"
PARTS = (
    *("Pulumi.yaml", "__main__.py", "stacks", "components", "gpuclusters"),
    *("caas", "engine", "lab"),
)
# Nothing answers there: what is previewed is a cluster that is not there yet.
_CLUSTER = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "fleet", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "admin", "user": {"token": "made up"}}],
    "contexts": [{"name": "fleet", "context": {"cluster": "fleet", "user": "admin"}}],
    "current-context": "fleet",
}
_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nmade up\n-----END OPENSSH PRIVATE KEY-----\n"
SECRETS = {
    "gpu-clusters:kubeconfig": json.dumps(_CLUSTER),
    "gpu-clusters:ssh-private-key": _KEY,
    "gpu-clusters:controller-ssh-private-key": _KEY,
    "gpu-clusters:bmc-password": "made up",
}


@dataclass(frozen=True)
class Project:
    """A project in a folder of its own, run by the embedded engine."""

    folder: Path
    env: Mapping[str, str]

    @classmethod
    def of(cls, source: Path, root: Path, env: Mapping[str, str] | None = None) -> Project:
        """A copy of a small project, or links to the parts of this one."""
        (root / "state").mkdir(parents=True)
        folder = root / "project"
        if source == ROOT:
            folder.mkdir()
            for part in PARTS:
                (folder / part).symlink_to(ROOT / part)
        else:
            shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PULUMI_", "GPU_"))}
        made = cls(
            folder,
            {
                **clean,
                "PULUMI_BACKEND_URL": f"file://{root / 'state'}",
                "PULUMI_CONFIG_PASSPHRASE": "",
                "PULUMI_PYTHON_CMD": sys.executable,
                "PYTHONPATH": str(ROOT),
                **(env or {}),
            },
        )
        made.run("stack", "init")
        return made

    def run(self, *arguments: str, **env: str) -> str:
        """Run the engine; gives what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "engine", *arguments, "--stack", "dev"],
            cwd=self.folder,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def timed(self, *arguments: str, **env: str) -> tuple[float, str]:
        """Seconds that the engine took, and what it printed."""
        begin = time.perf_counter()
        said = self.run(*arguments, **env)
        return time.perf_counter() - begin, said

    def sampled(self, *arguments: str) -> tuple[float, str, Used]:
        """The same, and what every process used of a processor."""
        with tempfile.TemporaryDirectory() as folder:
            env = {
                "PYTHONPATH": f"{ROOT / 'bench' / 'sampled'}{os.pathsep}{ROOT}",
                "GPU_CLUSTERS_BENCH_SAMPLES": folder,
                "GPU_CLUSTERS_BENCH_ROOT": str(ROOT),
            }
            seconds, said = self.timed(*arguments, **env)
            return seconds, said, used(Path(folder))

    def configure(self, values: Mapping[str, Any]) -> None:
        """Give the stack these values and keep what else its file says."""
        path = self.folder / "Pulumi.dev.yaml"
        known = yaml.safe_load(path.read_text()) if path.exists() else {}
        kept = (known or {}).get("config", {})
        path.write_text(yaml.safe_dump({**(known or {}), "config": {**kept, **values}}))

    def set_secrets(self) -> None:
        """Secrets that look like what they should be."""
        for name, value in SECRETS.items():
            self.run("config", "set", "--secret", name, value)


def archived(chart: Path, folder: Path) -> dict[str, str]:
    """A chart as a file beside a stack, so that no registry is asked: the value of a key `chart`."""
    file = folder / f"{chart.name}.tgz"
    with tarfile.open(file, "w:gz") as archive:
        archive.add(chart, arcname=chart.name)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return {"source": "file", "path": file.name, "sha256": digest}


def stack(machines: int, chart: Mapping[str, str]) -> dict[str, Any]:
    """The example's configuration with so many machines, and Kata's chart from a file.

    Beyond those of the example each is like its last one, with an address, a BMC and a host key of its own.
    """
    example = yaml.safe_load(EXAMPLE.read_text())["config"]
    section = example["gpu-clusters:caas"]
    known, nodes = section["hosts"]["machines"], section["nodes"]
    for number in range(len(known) + 1, machines + 1):
        name = f"hgx-{number:03}"
        key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
        known.append({"name": name, "address": f"10.20.1.{number}", "host-key": key})
        bmc = {**nodes[-1]["bmc"], "url": f"https://10.21.1.{number}"}
        nodes.append({**nodes[-1], "name": name, "bmc": bmc})
    cut = {
        **section,
        "kata": {**section["kata"], "chart": chart},
        "nodes": nodes[:machines],
        "hosts": {**section["hosts"], "machines": known[:machines]},
    }
    return {**example, "gpu-clusters:caas": cut}


@dataclass(frozen=True)
class Used:
    """What the processes of one command used of a processor, by what they are."""

    engine: float
    program: float
    providers: float
    ours_in_program: float
    """Of the program's: in this project's own code, with what that calls of Python's library."""


def used(samples: Path) -> Used:
    """Read what `sampled/sitecustomize.py` wrote."""
    seconds = {"engine": 0.0, "program": 0.0, "providers": 0.0}
    ours = 0.0
    for file in samples.glob("*.json"):
        taken = json.loads(file.read_text())
        line = " ".join(taken["arguments"])
        kind = "program" if "program_runner" in line else "providers"
        kind = "engine" if "-m engine" in line else kind
        seconds[kind] += sum(taken["seconds"].values())
        if kind == "program":
            ours += sum(taken["seconds"].get(part, 0.0) for part in _OURS)
    return Used(**seconds, ours_in_program=ours)


_OURS = {"gpuclusters", "components", "stacks", "caas", "__main__.py"}
