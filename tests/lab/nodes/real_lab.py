"""Real nodes for tests, in the cluster of the run: only pods that tolerate them are put there."""

from __future__ import annotations

import functools
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

import lab.hosts
from lab import control_plane, gpu_operator, images, nodes, tools
from lab.control_plane import NodeSpec, Taint
from lab.control_plane.kube import UnavailableError
from lab.gpu_operator import toolkit
from lab.nodes import NodesStatus, command_in, machine_facts
from lab.nodes.choice import obstacles
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.waiting import eventually

CHARTS = Path(__file__).resolve().parents[3] / "lab" / "charts"
TAINT = "gpu-clusters.dev/real-nodes-of"
BUILD_SECONDS = 2400
"""A kubelet and containerd may have to be built first."""
_ENDED = "command terminated with exit code"
"""By which kubectl says that a command ran, and failed."""
_SILENT = "TLS handshake timeout"
_WAIT_SECONDS = 300.0
"""For what takes a second or two: a test waits for what it looks at, however slow the machine."""


@functools.cache
def reason_against() -> str:
    """Why this machine can have no real node; empty if it can."""
    return "; ".join(obstacles(machine_facts()))


only_where_possible = pytest.mark.skipif(bool(reason_against()), reason=reason_against() or "-")
REAL_NODE = [
    pytest.mark.lab,
    pytest.mark.real_node,
    only_where_possible,
    pytest.mark.timeout(BUILD_SECONDS),
]
"""Marks of a file whose tests have real nodes."""


@dataclass(frozen=True, slots=True)
class RealLab:
    """Real nodes of one test file."""

    folder: Path
    cluster: KubeCluster
    names: tuple[str, ...]
    token: str = ""
    """By which its pods find it, in a cluster that others use."""
    archives: tuple[Path, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict)
    """What else `NodesSpec` says."""

    @property
    def client(self) -> tuple[str, ...]:
        """kubectl as administrator."""
        return str(tools.resolve("kubectl")), f"--kubeconfig={self.cluster.kubeconfig}"

    def start(
        self,
        *more: str,
        capacity: Mapping[str, str] = nodes.OWN_CAPACITY,
        allocatable: Mapping[str, str] = nodes.OWN_CAPACITY,
        archives: Sequence[Path] = (),
        **others: Any,
    ) -> NodesStatus:
        """Start them; again: changes nothing. With these nodes of a capacity and archives beside its own."""
        own, taint = nodes.OWN_CAPACITY, Taint(TAINT, "NoSchedule", self.token)
        sizes = dict.fromkeys(self.names, (own, own)) | dict.fromkeys(more, (capacity, allocatable))
        taken = {"taints": (taint,)} if self.token else {}
        spec = nodes.NodesSpec(
            control_plane=self.cluster.folder,
            nodes=tuple(
                NodeSpec(name, {TAINT: self.token} if self.token else {}, *size, **taken)
                for name, size in sizes.items()
            ),
            images=(*self.archives, *archives),
            **{**self.others, **others},
        )
        return nodes.start(self.folder, spec)

    def in_node(self, name: str, *command: str) -> str:
        """Output of a command in the namespaces of a node, also while its host has not joined."""
        line = command_in(nodes.status(self.folder).machines[name], command)
        done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def containerd(self, name: str, configuration: Path | str) -> str:
        """A configuration of containerd's as containerd of a node reads it."""
        program = str(tools.ensure(["containerd"])["containerd"])
        return self.in_node(name, program, "--config", str(configuration), "config", "dump")

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """The output of kubectl; fails the test with what kubectl said."""
        done = called([*self.client, *arguments], given)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def says(self, *arguments: str) -> str:
        """The same for whoever looks until something is there: nothing while kubectl fails."""
        done = called([*self.client, *arguments])
        return done.stdout if done.returncode == 0 else ""

    def logs(self, namespace: str, pod: str) -> str:
        """What a pod has said; what it just says may come a moment later."""
        return self.says("logs", pod, f"--namespace={namespace}")

    def pod(self, namespace: str, name: str, script: str, **spec: Any) -> None:
        """Create a pod that runs a script in busybox, somewhere on these nodes or on `nodeName`."""
        container = {
            "name": "c",
            "image": images.BUSYBOX,
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", script],
            **spec.pop("container", {}),
        }
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, **spec.pop("metadata", {})},
            "spec": {
                "containers": [container],
                "nodeSelector": {TAINT: self.token} if self.token else {},
                "tolerations": [{"key": TAINT, "operator": "Exists"}],
                "terminationGracePeriodSeconds": 0,
                **spec,
            },
        }
        # A namespace has it a moment after itself, and a pod without is refused.
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        eventually(lambda: _is_there(self.cluster, account), f"{namespace} has an account")
        self.kubectl("create", "-f", "-", given=json.dumps(manifest))

    def found(self, namespace: str, name: str) -> dict[str, Any]:
        """The pod as the API server has it."""
        return self.got(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def node(self, name: str) -> dict[str, Any]:
        """The Node as the API server has it."""
        return self.got(f"/api/v1/nodes/{name}")

    def is_ready(self, name: str) -> bool:
        """Whether the node is Ready."""
        return is_ready(self.node(name))

    def restarts(self, namespace: str, pod: str) -> int:
        """How often the containers of a pod were started again."""
        found = self.found(namespace, pod)["status"].get("containerStatuses", [])
        return sum(container["restartCount"] for container in found)

    def got(self, path: str) -> dict[str, Any]:
        """An object, or a list of them: with less work for the machine than by kubectl.

        An API server that is busy is asked again.
        """
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                with self.cluster.api() as api:
                    return api.get(path)
            except UnavailableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def ready(self, namespace: str, *names: str) -> None:
        """Wait until the pods are Ready."""
        for name in names:
            eventually(
                lambda name=name: is_ready(self.found(namespace, name)), f"pod {name} is Ready"
            )

    def run_in(self, namespace: str, pod: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a pod's container, as soon as it can be reached.

        A command that failed has failed. One that was not reached, because a kubelet is busy or away, is
        tried again.
        """
        line = [*self.client, "exec", f"--namespace={namespace}", pod, "--", *command]
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            done = called(line)
            if done.returncode == 0 or _ENDED in done.stderr or time.monotonic() > deadline:
                return done
            time.sleep(0.5)


def called(line: Sequence[str], given: str | None = None) -> subprocess.CompletedProcess[str]:
    """Call kubectl; again where it gave up before it had said anything, on a machine that stood still."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        done = subprocess.run(
            line, input=given, capture_output=True, text=True, timeout=_WAIT_SECONDS, check=False
        )
        if _SILENT not in done.stderr or time.monotonic() > deadline:
            return done


def _is_there(cluster: KubeCluster, path: str) -> bool:
    with suppress(UnavailableError), cluster.api() as api:
        return api.request("GET", path)[0] == 200
    return False


@contextmanager
def real_lab(
    cluster: KubeCluster, count: int = 1, *, with_hosts: bool = False
) -> Iterator[RealLab]:
    """So many real nodes, gone afterwards; skips, with the reason, where a program cannot be had.

    `with_hosts`: under each is the simulated host of its name.
    """
    token = secrets.token_hex(4)
    names = tuple(f"real-{token}-{number}" for number in range(count))
    tools.ensure([*nodes.TOOLS, "kubectl"])
    # Below the folder of the run: whatever happens to this process, the nodes end when that is removed.
    folder = Path(tempfile.mkdtemp(prefix="real-", dir=cluster.folder))
    under = folder / "hosts" if with_hosts else None
    made = RealLab(
        folder / "nodes", cluster, names, token, tuple(images.basic(print)), {"hosts": under}
    )
    try:
        if under:
            lab.hosts.start(under, [lab.hosts.HostSpec(name, condition="node") for name in names])
        made.start()
        yield made
    finally:
        nodes.stop(made.folder)
        if under:
            lab.hosts.stop(under)
        with cluster.api() as api:
            for name in names:
                api.delete(f"/api/v1/nodes/{name}")
        shutil.rmtree(folder)


def is_ready(found: dict[str, Any]) -> bool:
    """Whether a pod or a node says that it can be used."""
    conditions = found["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def cgroup_files(groups: Iterable[Path], pod: str, *names: str) -> set[str]:
    """What is in the files of these names of a pod and its containers.

    `groups` are those of the node, there or not; `pod` is the pod's uid, which is in the names of its own.
    """
    found = set()
    for group in groups:
        # Not `glob`, which a folder that goes away meanwhile ends.
        for folder, _, files in os.walk(group):
            for name in {*files}.intersection(names) if pod in folder else ():
                with suppress(OSError):
                    found.add(Path(folder, name).read_text().strip())
    return found


def lives(pid: int) -> bool:
    """Whether a process has not ended; one that nobody has waited for yet has."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


@contextmanager
def own_cluster(
    folder: Path,
    names: Sequence[str],
    *,
    archives: Sequence[Path] = (),
    platforms: Sequence[str] = (),
    **others: Any,
) -> Iterator[RealLab]:
    """Real nodes in a cluster of their own, where any pod may be put on them.

    `platforms`: of the simulated hosts under the nodes; `others`: what else `NodesSpec` says.
    """
    tools.ensure([*nodes.TOOLS, "kubectl"])
    kept = (*images.basic(print), *archives)
    with ExitStack() as stack:
        stack.callback(control_plane.stop, folder, print)
        plane = control_plane.start(folder, print)
        if platforms:
            stack.callback(lab.hosts.stop, folder / "hosts")
            specs = map(lab.hosts.HostSpec, names, platforms)
            lab.hosts.start(folder / "hosts", list(specs))
            others["hosts"] = folder / "hosts"
        stack.callback(nodes.stop, folder / "nodes")
        cluster = KubeCluster(folder, plane.kubeconfig, plane.url, tuple(names))
        made = RealLab(folder / "nodes", cluster, tuple(names), "", kept, others)
        made.start()
        yield made


def simulated(folder: Path, name: str) -> SimulatedHost:
    """The host under a node."""
    endpoint = lab.hosts.status(folder / "hosts").hosts[name]
    return SimulatedHost(name, folder / "hosts", endpoint, folder / "ssh" / "id_ed25519")


@contextmanager
def played_operator(folder: Path, node: str) -> Iterator[Path]:
    """Who plays the GPU Operator on a node of such a cluster once it is installed: its folder."""
    toolkit.ensure(print)
    its = folder / "gpu_operator"
    spec = gpu_operator.OperatorSpec(
        control_plane=folder, hosts=folder / "hosts", kubelets=folder / "kubelet", nodes=(node,)
    )
    try:
        gpu_operator.start(its, spec)
        yield its
    finally:
        gpu_operator.stop(its)


@contextmanager
def found_cluster(folder: Path, node: str) -> Iterator[RealLab]:
    """A cluster of its own, as one finds it: a real node with eight GPUs, and who would play the operator."""
    kept = [images.stand_in(print).archive]
    with (
        own_cluster(folder, [node], archives=kept, platforms=["plain-gpu-a100"]) as real,
        played_operator(folder, node),
    ):
        yield real
