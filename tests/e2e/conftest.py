"""A checkout of the project with a lab of its own, used as a user does: by commands."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import hosts, tools
from lab.control_plane.kube import KubeApi
from lab.control_plane.layout import Layout
from lab.control_plane.ports import kept
from lab.hosts import journal
from tests.engine.warmkit import WarmProject, warm_project
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.keys import quick_keys
from tests.fixtures.waiting import eventually

pytest.register_assert_rewrite("tests.e2e.tenants")

SOURCE = Path(__file__).resolve().parents[2]
LINKED = (
    *("Pulumi.yaml", "__main__.py", "components", "stacks", "gpuclusters", "lab"),
    *("caas", "engine"),
)
FABRIC_MANAGER = "192.168.250.2"
"""Address of the service VM on the network that it shares with its machine."""
# Only what hangs gets there: all of it takes seconds on a machine that has nothing else to do.
COMMAND_SECONDS = 600
SILENCE_SECONDS = 300
"""Longer than any wait of a provider in the lab that ends well."""
PAGE_BYTES = 4096
"""The least that a pipe can hold."""


@dataclass
class Checkout:
    """A folder in which `gpu-clusters` and the engine are called."""

    folder: Path
    lab: Path
    warm: WarmProject
    """Commands that have imported everything already; a run that is to be killed is started cold."""
    extra: dict[str, str] = field(default_factory=dict)
    nodes: str = "simulated"
    """What `lab.nodes` says: the file as it is committed leaves it to the machine."""
    types: tuple[str, ...] = ()
    """The types of clusters in the stack's file, its own first; none: all that are committed."""

    @property
    def env(self) -> dict[str, str]:
        """The environment of commands, with nothing of Pulumi's from outside."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PULUMI_")}
        return {
            **clean,
            "GPU_CLUSTERS_LAB": str(self.lab),
            "GPU_CLUSTERS_ENGINE": "embedded",
            "COLUMNS": "200",
            "PYTHONFAULTHANDLER": "1",
            **quick_keys(self.folder.parent / "keys"),
            **self.extra,
        }

    @property
    def engine_env(self) -> dict[str, str]:
        """What `gpu-clusters` gives the engine."""
        return {
            **self.env,
            "PULUMI_BACKEND_URL": f"file://{self.lab / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": "gpu-clusters-lab",
            "GPU_CLUSTERS_SSH_KEY_FILE": str(self.lab / "ssh" / "id_ed25519"),
        }

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Call `gpu-clusters`."""
        return self._call([str(self.warm.cli), *args], {**self.env, **self.warm.variables})

    def engine(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Call the embedded engine on the dev stack."""
        command = [str(self.warm.engine), *args, "--stack", "dev"]
        return self._call(command, {**self.engine_env, **self.warm.variables})

    def start(self, *args: str, engine: bool = False) -> subprocess.Popen[str]:
        """Start `gpu-clusters`, or the embedded engine on the dev stack, in a process group of its own.

        It gets ahead of whoever reads what it prints by a few lines only: who waits for one and is slow to
        act on it finds the run where it was.
        """
        command = ["engine", *args, "--stack", "dev"] if engine else ["gpuclusters.cli", *args]
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=self.folder,
            env={**(self.engine_env if engine else self.env), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
            pipesize=PAGE_BYTES,
        )

    def _call(self, command: list[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def up(self, *args: str) -> str:
        """`gpu-clusters up` that must succeed; gives what it printed."""
        done = self.run("up", *args)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def up_again(self) -> None:
        """An `up` that looks at everything first, and must find nothing to change."""
        done = self.engine("up", "--yes", "--skip-preview", "--refresh", "--expect-no-changes")
        assert done.returncode == 0, done.stdout + done.stderr

    def destroy(self) -> None:
        """Take away what the stack made; it must go, and leave no resource in the state."""
        done = self.engine("destroy", "--yes", "--skip-preview")
        assert done.returncode == 0, done.stdout + done.stderr
        assert self.state() == []

    def plan(self, *args: str) -> list[str]:
        """The steps of a preview that an `up` would take: `update MigLayout gpu-03-mig`, sorted."""
        done = self.engine("preview", "--json", *args)
        assert done.returncode == 0, done.stdout + done.stderr
        steps = []
        for step in json.loads(done.stdout)["steps"]:
            _, _, types, name = step["urn"].split("::")
            if step["op"] not in ("same", "refresh"):
                steps.append(f"{step['op']} {re.split('[$:]', types)[-1]} {name}")
        return sorted(steps)

    def configure(self, section: str = "caas", **keys: Any) -> None:
        """Set keys of a section."""
        with self.configuration() as config:
            for key, value in keys.items():
                config[f"gpu-clusters:{section}"][key.replace("_", "-")] = value

    @contextlib.contextmanager
    def configuration(self) -> Iterator[dict[str, Any]]:
        """The stack's, to be changed."""
        path = self.folder / "Pulumi.dev.yaml"
        document = yaml.safe_load(path.read_text())
        yield document["config"]
        path.write_text(yaml.safe_dump(document))

    def reset(self, *types: str) -> None:
        """The configuration as it is committed, with these nodes; of these types alone, if any are chosen.

        The first of them is the stack's. Without machines of the others the lab is smaller.
        """
        self.types = types or self.types
        text = (SOURCE / "Pulumi.dev.yaml").read_text()
        file = self.folder / "Pulumi.dev.yaml"
        file.write_text(text.replace("{nodes: auto}", f"{{nodes: {self.nodes}}}"))
        with self.configuration() as config:
            if self.types:
                for key in {"caas", "rke2", "usernetes"} - set(self.types):
                    del config[f"gpu-clusters:{key}"]
                config["gpu-clusters:cluster-type"] = self.types[0]

    def host(self, name: str) -> SimulatedHost:
        folder = self.lab / "hosts"
        endpoint = hosts.status(folder).hosts[name]
        return SimulatedHost(name, folder, endpoint, self.lab / "ssh" / "id_ed25519")

    def on_host(self, host: str, command: str) -> str:
        """What a command prints on a simulated machine."""
        done = self.host(host).run(command, timeout=COMMAND_SECONDS)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout

    def unharmed(self, *machines: str) -> None:
        """Nothing was done to these machines that would have hurt a real one."""
        for name in machines:
            assert journal.read(self.lab / "hosts", name, "harm") == []

    def active_partitions(self, host: str) -> list[int]:
        """What the machine's fabric manager says."""
        table = json.loads(self.on_host(host, f"fmpm --hostname {FABRIC_MANAGER} -l"))
        return sorted(p["partitionId"] for p in table["partitionInfo"] if p["isActive"])

    def comes_to(self, partitions: list[int], *machines: str) -> None:
        """These are active once the leases have nothing to do.

        A GPU that is new to the cluster is recycled first, and its partition is down meanwhile.
        """
        for host in machines:
            eventually(
                lambda host=host: self.active_partitions(host) == partitions,
                f"{partitions} on {host}",
                SILENCE_SECONDS,
            )

    def objects(self, path: str) -> list[dict[str, Any]]:
        """What is in a collection of the API, for whoever looks often: kubectl is a process each time."""
        with self.api() as api:
            return list(api.get(path)["items"])

    def api(self) -> KubeApi:
        layout = Layout.of(self.lab)
        return KubeApi(layout, kept(layout.ports)["kube-apiserver"])

    def nodes_of_api(self) -> dict[str, dict[str, Any]]:
        return {node["metadata"]["name"]: node for node in self.objects("/api/v1/nodes")}

    def gpus(self) -> dict[str, dict[str, str]]:
        """What each node offers of them, by resource."""
        return {
            name: {
                key: count
                for key, count in node["status"]["allocatable"].items()
                if key.startswith("nvidia.com/") and count != "0"
            }
            for name, node in self.nodes_of_api().items()
        }

    def kubectl(self, *args: str) -> Any:
        """What kubectl prints as JSON."""
        return json.loads(self.kubectl_text(*args, "-o", "json"))

    def kubectl_text(self, *args: str) -> str:
        """What kubectl prints."""
        command = [str(kubectl()), "--kubeconfig", str(self.lab / "kubeconfig"), *args]
        done = self._call(command, self.env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def state(self) -> list[dict[str, Any]]:
        """The resources in the stack's state."""
        done = self.engine("stack", "export")
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout)["deployment"].get("resources") or [])

    def not_in_state(self, *secrets: str) -> None:
        """None of these stands in clear in a file of the state."""
        kept = [path for path in (self.lab / "state").rglob("*.json") if path.is_file()]
        assert kept
        for path in kept:
            text = path.read_text(errors="replace")
            assert not [one for one in secrets if one in text], path


@functools.cache
def kubectl() -> Path:
    """Where it is: asking each kubectl on PATH for its version takes as long as what it is wanted for."""
    return tools.resolve("kubectl")


def linked(project: Path) -> Path:
    """The project's code in a folder of its own, without any stack."""
    project.mkdir()
    for name in LINKED:
        (project / name).symlink_to(SOURCE / name)
    (project / ".venv").symlink_to(sys.prefix)
    return project


@contextlib.contextmanager
def checkout(folder: Path, *types: str, nodes: str = "simulated") -> Iterator[Checkout]:
    """A checkout, with these types of clusters or all, whose lab is gone afterwards."""
    with warm_project() as warm:
        made = Checkout(linked(folder / "project"), folder / "lab", warm, nodes=nodes)
        made.reset(*types)
        try:
            yield made
        finally:
            done = made.run("down")
            assert done.returncode == 0, done.stdout + done.stderr
            assert not made.lab.exists()
