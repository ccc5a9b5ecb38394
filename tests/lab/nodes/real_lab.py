"""Real nodes for tests, in the cluster of the run: only pods that tolerate them are put there."""

from __future__ import annotations

import functools
import json
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import control_plane, gpu_operator, hosts, images, nodes, tools
from lab.control_plane import NodeSpec, Taint
from lab.control_plane.kube import UnavailableError
from lab.gpu_operator import toolkit
from lab.hosts.folder import HostsFolder
from lab.nodes import NodesStatus, machine_facts
from lab.nodes.choice import obstacles
from lab.nodes.model import Devices
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.waiting import eventually

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


@dataclass(frozen=True, slots=True)
class RealLab:
    """Real nodes of one test file."""

    folder: Path
    cluster: KubeCluster
    names: tuple[str, ...]
    token: str
    archives: tuple[Path, ...]
    devices: Mapping[str, Devices]
    ports: tuple[int, ...]
    open_to_all: bool
    client: tuple[str, ...]
    """kubectl as administrator."""
    hosts: Path | None = None
    """Folder of the simulated hosts under the nodes."""

    def start(
        self,
        *more: str,
        capacity: Mapping[str, Mapping[str, str]] | None = None,
        allocatable: Mapping[str, Mapping[str, str]] | None = None,
        archives: Sequence[Path] = (),
        ports: Sequence[int] = (),
        joins: Sequence[str] = (),
        aliases: Mapping[str, str] | None = None,
    ) -> NodesStatus:
        """Start them; again: changes nothing. With these nodes, archives, ports beside its own."""
        taints = () if self.open_to_all else (Taint(TAINT, "NoSchedule", self.token),)
        own = nodes.OWN_CAPACITY
        return nodes.start(
            self.folder,
            nodes.NodesSpec(
                control_plane=self.cluster.folder,
                nodes=tuple(
                    NodeSpec(
                        name,
                        {TAINT: self.token},
                        (capacity or {}).get(name, own),
                        (allocatable or {}).get(name, own),
                        taints=taints,
                    )
                    for name in (*self.names, *more)
                ),
                images=(*self.archives, *archives),
                hosts=self.hosts,
                joins=tuple(joins),
                devices=self.devices,
                ports=(*self.ports, *ports),
                aliases=aliases or {},
            ),
        )

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
                "nodeSelector": {TAINT: self.token},
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
        return self._got(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def node(self, name: str) -> dict[str, Any]:
        """The Node as the API server has it."""
        return self._got(f"/api/v1/nodes/{name}")

    def _got(self, path: str) -> dict[str, Any]:
        # What is looked at again and again: a kubectl each time takes more of the machine than the node.
        return patient_get(self.cluster, path)

    def ready(self, namespace: str, *names: str) -> None:
        """Wait until the pods are Ready."""
        for name in names:
            eventually(
                lambda name=name: is_ready(self.found(namespace, name)), f"pod {name} is Ready"
            )

    def run_in(self, namespace: str, pod: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a pod's container, as soon as it can be reached."""
        return run_in(self.client, namespace, pod, *command)


def called(line: Sequence[str], given: str | None = None) -> subprocess.CompletedProcess[str]:
    """Call kubectl; again where it gave up before it had said anything, on a machine that stood still."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        done = subprocess.run(
            line, input=given, capture_output=True, text=True, timeout=_WAIT_SECONDS, check=False
        )
        if _SILENT not in done.stderr or time.monotonic() > deadline:
            return done


def run_in(
    client: Sequence[str], namespace: str, pod: str, *command: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a pod's container; `client` is kubectl as administrator.

    A command that failed has failed. One that was not reached, because a kubelet is busy or away, is tried
    again.
    """
    line = [*client, "exec", f"--namespace={namespace}", pod, "--", *command]
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        done = called(line)
        if done.returncode == 0 or _ENDED in done.stderr or time.monotonic() > deadline:
            return done
        time.sleep(0.5)


def patient_get(cluster: KubeCluster, path: str) -> dict[str, Any]:
    """What the API server has there; one that is busy is asked again."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            with cluster.api() as api:
                return api.get(path)
        except UnavailableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _is_there(cluster: KubeCluster, path: str) -> bool:
    with suppress(UnavailableError), cluster.api() as api:
        return api.request("GET", path)[0] == 200
    return False


@contextmanager
def real_lab(
    cluster: KubeCluster,
    count: int = 1,
    devices: Callable[[str], Devices] | None = None,
    archives: Sequence[Path] = (),
    ports: Sequence[int] = (),
    *,
    open_to_all: bool = False,
    with_hosts: bool = False,
) -> Iterator[RealLab]:
    """So many real nodes, gone afterwards; skips, with the reason, where a program cannot be had.

    `with_hosts`: each has the folder of a simulated host under it, without a server of hosts.

    `open_to_all`: any pod may be put there, which is for a cluster of one test's own.
    """
    token = secrets.token_hex(4)
    names = tuple(f"real-{token}-{number}" for number in range(count))
    kubectl = tools.ensure([*nodes.TOOLS, "kubectl"])["kubectl"]
    basic = images.basic(print)
    # Below the folder of the run: whatever happens to this process, the nodes end when that is removed.
    folder = Path(tempfile.mkdtemp(prefix="real-", dir=cluster.folder))
    given = {name: devices(name) for name in names} if devices else {}
    client = (str(kubectl), f"--kubeconfig={cluster.kubeconfig}")
    hosts = folder / "hosts" if with_hosts else None
    for name in names if hosts else ():
        HostsFolder(hosts).host(name).root.mkdir(parents=True)
    made = RealLab(
        folder / "nodes",
        cluster,
        names,
        token,
        (*basic, *archives),
        given,
        tuple(ports),
        open_to_all,
        client,
        hosts,
    )
    try:
        made.start()
        yield made
    finally:
        nodes.stop(made.folder)
        with cluster.api() as api:
            for name in names:
                api.delete(f"/api/v1/nodes/{name}")
        shutil.rmtree(folder)


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether a pod says that it can be used."""
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@contextmanager
def found_cluster(folder: Path, node: str, *archives: Path) -> Iterator[RealLab]:
    """A cluster of its own, as one finds it: a real node with eight GPUs, and who would play the operator."""
    tools.ensure([*nodes.TOOLS, "kubectl", "helm", "busybox"])
    toolkit.ensure(print)
    kept = (*images.basic(print), images.stand_in(print).archive, *archives)
    with ExitStack() as stack:
        stack.callback(control_plane.stop, folder, print)
        plane = control_plane.start(folder, print)
        hosts_folder = folder / "hosts"
        stack.callback(hosts.stop, hosts_folder)
        hosts.start(hosts_folder, [hosts.HostSpec(node, "plain-gpu-a100")])
        stack.callback(nodes.stop, folder / "nodes")
        own = NodeSpec(node, {}, nodes.OWN_CAPACITY, nodes.OWN_CAPACITY)
        nodes.start(
            folder / "nodes",
            nodes.NodesSpec(control_plane=folder, nodes=(own,), images=kept, hosts=hosts_folder),
        )
        stack.callback(gpu_operator.stop, folder / "gpu_operator")
        gpu_operator.start(
            folder / "gpu_operator",
            gpu_operator.OperatorSpec(
                control_plane=folder,
                hosts=hosts_folder,
                kubelets=folder / "kubelet",
                nodes=(node,),
            ),
        )
        client = (str(tools.resolve("kubectl")), f"--kubeconfig={plane.kubeconfig}")
        cluster = KubeCluster(folder, plane.kubeconfig, plane.url, (node,))
        yield RealLab(
            folder / "nodes", cluster, (node,), "", kept, {}, (), open_to_all=True, client=client,
        )  # fmt: skip
