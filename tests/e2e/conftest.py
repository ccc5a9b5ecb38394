"""A checkout of the project with a lab of its own, used as a user does: by commands."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh
import psutil
import pytest
import yaml

from lab import hosts, tools
from lab.control_plane.kube import KubeApi
from lab.control_plane.layout import Layout
from lab.control_plane.ports import kept
from lab.hosts import injecting, journal
from tests.engine.warmkit import WarmProject, warm_project
from tests.fixtures.keys import quick_keys

pytest.register_assert_rewrite("tests.e2e.story")

SOURCE = Path(__file__).resolve().parents[2]
LINKED = (
    *("Pulumi.yaml", "__main__.py", "components", "stacks", "gpuclusters", "lab"),
    *("caas", "engine"),
)
FABRIC_MANAGER = "192.168.250.2"
"""Address of the service VM on the network that it shares with its machine."""
# Only what hangs gets there: all of it takes seconds on a machine that has nothing else to do.
COMMAND_SECONDS = 600
LEASE_SECONDS = 300
SILENCE_SECONDS = 300
"""Longer than any wait of a provider in the lab that ends well."""
PAGE_BYTES = 4096
"""The least that a pipe can hold."""


@dataclass
class Checkout:
    """A folder in which `gpu-clusters` and the engine are called."""

    folder: Path
    lab: Path
    extra: dict[str, str] = field(default_factory=dict)
    restored: bool = False
    """Whether the present test has shown that all is as it found it."""
    nodes: str = "simulated"
    """What `lab.nodes` says: the file as it is committed leaves it to the machine."""
    types: tuple[str, ...] = ()
    """The types of clusters in the stack's file, its own first; none: all that are committed."""
    warm: WarmProject | None = None
    """Commands that have imported everything already; a run that is to be killed is started cold."""

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
        if self.warm is None:
            return self._call([sys.executable, "-m", "gpuclusters.cli", *args], self.env)
        return self._call([str(self.warm.cli), *args], {**self.env, **self.warm.variables})

    def engine(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Call the embedded engine on the dev stack."""
        more = [*args, "--stack", "dev"]
        if self.warm is None:
            return self._call([sys.executable, "-m", "engine", *more], self.engine_env)
        return self._call(
            [str(self.warm.engine), *more], {**self.engine_env, **self.warm.variables}
        )

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

    def plan(self, *args: str) -> list[dict[str, Any]]:
        """The steps of a preview that an `up` would take."""
        done = self.engine("preview", "--json", *args)
        assert done.returncode == 0, done.stdout + done.stderr
        return [
            step
            for step in json.loads(done.stdout)["steps"]
            if step["op"] not in ("same", "refresh")
        ]

    def configure(self, section: str = "caas", **keys: Any) -> None:
        """Set keys of a section."""
        path = self.folder / "Pulumi.dev.yaml"
        document = yaml.safe_load(path.read_text())
        for key, value in keys.items():
            document["config"][f"gpu-clusters:{section}"][key.replace("_", "-")] = value
        path.write_text(yaml.safe_dump(document))

    def choose(self, cluster_type: str) -> None:
        """Another type of cluster, as `pulumi config set cluster-type` writes it down."""
        path = self.folder / "Pulumi.dev.yaml"
        document = yaml.safe_load(path.read_text())
        document["config"]["gpu-clusters:cluster-type"] = cluster_type
        path.write_text(yaml.safe_dump(document))

    def only(self, cluster_type: str, *others: str) -> None:
        """A stack file with these types of clusters alone, so that the lab has no other machines."""
        self.types = (cluster_type, *others)
        self.reset()

    def reset(self) -> None:
        """The configuration as it is committed, with these nodes; of these types alone, if any are chosen."""
        text = (SOURCE / "Pulumi.dev.yaml").read_text()
        text = text.replace("{nodes: auto}", f"{{nodes: {self.nodes}}}")
        if self.types:
            document = yaml.safe_load(text)
            kept = [f"gpu-clusters:{key}" for key in ("cluster-type", "lab", *self.types)]
            document["config"] = {
                key: value for key, value in document["config"].items() if key in kept
            }
            document["config"]["gpu-clusters:cluster-type"] = self.types[0]
            text = yaml.safe_dump(document)
        (self.folder / "Pulumi.dev.yaml").write_text(text)

    def on_host(self, host: str, command: str) -> str:
        """What a command prints on a simulated machine."""
        endpoint = hosts.status(self.lab / "hosts").hosts[host]

        async def run() -> asyncssh.SSHCompletedProcess:
            async with asyncssh.connect(
                endpoint.address,
                endpoint.port,
                username=endpoint.user,
                client_keys=[str(self.lab / "ssh" / "id_ed25519")],
                known_hosts=asyncssh.import_known_hosts(endpoint.known_host),
                agent_path=None,
                config=None,
            ) as connection:
                return await asyncio.wait_for(connection.run(command), COMMAND_SECONDS)

        with contextlib.closing(asyncio.new_event_loop()) as loop:
            done = loop.run_until_complete(run())
        assert done.exit_status == 0, f"{done.stdout}{done.stderr}"
        return str(done.stdout)

    def active_partitions(self, host: str) -> list[int]:
        """What the machine's fabric manager says."""
        table = json.loads(self.on_host(host, f"fmpm --hostname {FABRIC_MANAGER} -l"))
        return sorted(p["partitionId"] for p in table["partitionInfo"] if p["isActive"])

    def comes_to(self, host: str, partitions: list[int]) -> list[int]:
        """The partitions that are active once the leases have nothing to do.

        A GPU that is new to the cluster is recycled first, and its partition is down meanwhile.
        """
        until = time.monotonic() + LEASE_SECONDS
        while (active := self.active_partitions(host)) != partitions and time.monotonic() < until:
            time.sleep(1)
        return active

    def objects(self, path: str) -> list[dict[str, Any]]:
        """What is in a collection of the API, for whoever looks often: kubectl is a process each time."""
        layout = Layout.of(self.lab)
        with KubeApi(layout, kept(layout.ports)["kube-apiserver"]) as api:
            return list(api.get(path)["items"])

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
def checkout(folder: Path, nodes: str = "simulated") -> Iterator[Checkout]:
    """A checkout whose lab is gone afterwards."""
    made = Checkout(linked(folder / "project"), folder / "lab", nodes=nodes)
    made.reset()
    with warm_project() as made.warm:
        try:
            yield made
        finally:
            done = made.run("down")
            assert done.returncode == 0, done.stdout + done.stderr
            assert not made.lab.exists()


def settled(dev: Checkout) -> None:
    """Everything is there once, and nothing is left to do."""
    assert dev.plan("--refresh") == []
    resources = dev.state()
    assert [urn for urn, n in Counter(r["urn"] for r in resources).items() if n > 1] == []
    assert len([r for r in resources if r["type"].endswith(":FabricPartitions")]) == 2
    for host in ("hgx-01", "hgx-02"):
        assert dev.comes_to(host, [1, 5, 12, 14]) == [1, 5, 12, 14]
        assert journal.read(dev.lab / "hosts", host, "harm") == []
        # Written whole or not at all: no temporary file of a killed write is left.
        assert dev.on_host(host, "ls -A /etc/cdi").split() == ["nvidia.com-pgpu.json"]


def kill_all(process: subprocess.Popen[str], sign: int = signal.SIGKILL) -> None:
    """Send a signal to a run's program and providers, and to the engine last."""
    children = psutil.Process(process.pid).children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.send_signal(sign)
    process.send_signal(sign)


def told(process: subprocess.Popen[str]) -> Iterator[str]:
    """The lines that a run prints; one that is silent for long has to say where it waits."""
    assert process.stdout is not None
    lines: list[str] = []
    hangs = threading.Event()

    def ask() -> None:
        hangs.set()
        # Python prints what all threads do: see PYTHONFAULTHANDLER in the environment.
        kill_all(process, signal.SIGABRT)

    while True:
        watch = threading.Timer(SILENCE_SECONDS, ask)
        watch.daemon = True
        watch.start()
        line = process.stdout.readline()
        watch.cancel()
        if not line:
            break
        lines.append(line)
        if not hangs.is_set():
            yield line
    text = "".join(lines)[-20000:]
    assert not hangs.is_set(), f"the run said nothing for {SILENCE_SECONDS} s:\n{text}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The dev stack as it is committed but for the other types, up; for tests that only look."""
    with checkout(tmp_path_factory.mktemp("e2e")) as made:
        made.only("caas")
        made.up()
        yield made


@pytest.fixture
def dev(cluster: Checkout) -> Iterator[Checkout]:
    """The same for a test that changes something; afterwards all is put back."""
    cluster.restored = False
    yield cluster
    if cluster.restored:
        return
    for host in ("hgx-01", "hgx-02"):
        injecting.clear(cluster.lab / "hosts", host)
    cluster.reset()
    done = cluster.engine("up", "--yes", "--skip-preview", "--refresh")
    assert done.returncode == 0, done.stdout + done.stderr
