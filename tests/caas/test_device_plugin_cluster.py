"""The plugin as it runs in a cluster: a pod on a host, a kubelet, leases in a real API server."""

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from components.caas.programs import pod_template
from components.caas.system import RULES, SETTINGS_KEY
from gpuclusters.lease.model import crd
from gpuclusters.tenancy.programs import Program
from lab import tools
from lab.control_plane.kube import KubeApi
from lab.kubelet import reachable
from tests.caas.leasekit import settings_of
from tests.caas.leasesteps import HOLDER, drive, new_lease, shown
from tests.caas.test_device_plugin_allocation import HOST, TABLE
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.kubelet import IMAGE, Kubelets, KubeletStandIn
from tests.fixtures.tenancies import LEASES
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.lab

RESOURCE = "nvidia.com/pgpu"
GATE = "gpu-clusters.dev/lease"


PATIENCE_SECONDS = 150.0
"""How long a test waits for what must come; a busy machine takes its time."""


@dataclass
class Host:
    """A host with eight GPUs, its kubelet, and the plugin on it."""

    cluster: KubeCluster
    kubelet: KubeletStandIn
    namespace: str
    api: KubeApi

    @property
    def name(self) -> str:
        return self.kubelet.name

    def post(self, path: str, body: dict[str, Any]) -> None:
        status, answer = self.api.request("POST", path, body)
        assert status == 201, answer

    def patch(self, path: str, body: dict[str, Any]) -> None:
        status, answer = self.api.request("PATCH", path, body, "application/merge-patch+json")
        assert status == 200, answer

    def lease(self, module: int) -> dict[str, Any]:
        return self.api.get(f"{LEASES}/{self.name}-gpu{module}")

    def move(self, module: int, *phases: str, **more: Any) -> None:
        """Let a GPU go through phases, as the API server allows it."""
        drive(self.api.get, self.api.request, f"{self.name}-gpu{module}", *phases, **more)

    def free(self, module: int) -> None:
        cycle = ("Resetting", "Scrubbing", "Verifying", "Free")
        self.move(module, *cycle, conditions=shown("ResetDone", "MemoryCleared"))

    def grant(self, partition: int, pod: str) -> None:
        """Lease a partition to a pod, as the lease controller does."""
        gpus = list(TABLE.partition(partition).modules)
        uid = self.pod(pod)["metadata"]["uid"]
        named = {"namespace": self.namespace, "pod": pod, "podUid": uid, "container": pod}
        holder = {**HOLDER, **named, "partition": partition, "gpus": gpus}
        for module in gpus:
            self.move(module, "Reserved", "Activating", "Leased", holder=holder)
            self.move(module, "Leased", holder={**holder, "admitted": True})

    def request(self, pod: str, gpus: int) -> None:
        """A pod that waits behind the gate."""
        limits = {RESOURCE: str(gpus)}
        container = {"name": "main", "image": "any:1", "resources": {"limits": limits}}
        self.post(
            f"/api/v1/namespaces/{self.namespace}/pods",
            {
                "metadata": {"name": pod},
                "spec": {"schedulingGates": [{"name": GATE}], "containers": [container]},
            },
        )

    def let_go(self, pod: str) -> None:
        """Open the gate to this host."""
        selector = {"kubernetes.io/hostname": self.name}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}"
        self.patch(path, {"spec": {"schedulingGates": None, "nodeSelector": selector}})

    def pod(self, name: str) -> dict[str, Any]:
        return self.api.get(f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    def phase(self, name: str) -> str:
        return str(self.pod(name)["status"]["phase"])

    def wait_for_running(self, name: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (pod := self.pod(name))["status"]["phase"] != "Running":
            told = f"{pod['spec'].get('nodeName')} {pod['status']}\n{self.kubelet.log()}"
            assert pod["status"]["phase"] != "Failed", told
            assert time.monotonic() < deadline, told
            time.sleep(0.05)

    def offers(self, total: int, healthy: int) -> Callable[[], bool]:
        def look() -> bool:
            status = self.api.get(f"/api/v1/nodes/{self.name}")["status"]
            found = (status["capacity"].get(RESOURCE), status["allocatable"].get(RESOURCE))
            return found == (str(total), str(healthy))

        return look

    def allocated(self) -> set[int]:
        leases = [self.lease(module) for module in range(1, 9)]
        return {
            lease["spec"]["module"]
            for lease in leases
            if lease["status"].get("holder", {}).get("allocated")
        }

    def plugin(self) -> psutil.Process:
        """The process of the plugin, as soon as there is one."""
        return cast(psutil.Process, eventually(self._plugin))

    def ask_plugin(self, path: str) -> str:
        """What it answers; nothing where nobody answers or it is not ready."""
        address = reachable(self.pod("plugin")["status"]["podIP"])
        try:
            with urllib.request.urlopen(f"http://{address}:8082{path}", timeout=60) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def _plugin(self) -> psutil.Process | None:
        for child in psutil.Process(self.kubelet.pid).children():
            with suppress(psutil.Error):  # it has just ended
                if "caas.device_plugin" in child.cmdline():
                    return child
        return None

    def kubectl(self, *arguments: str) -> str:
        done = subprocess.run(
            [
                tools.ensure(["kubectl"])["kubectl"], "--kubeconfig", self.cluster.kubeconfig,
                "-n", self.namespace, *arguments,
            ],
            capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


def settings(host: str) -> str:
    hosts = (HOST.model_copy(update={"name": host}),)
    stated = settings_of([(host, None)]).model_copy(update={"hosts": hosts})
    return json.dumps(stated.model_dump(mode="json", by_alias=True))


def plugin_pod(node: str) -> dict[str, Any]:
    """As the stack's DaemonSet makes it."""
    home = SimpleNamespace(settings="settings", account="default")
    system = SimpleNamespace(
        homes={Program.DEVICE_PLUGIN: home}, secret="none", settings_digest="any"
    )
    args: Any = SimpleNamespace(
        system=system, image=f"{IMAGE}:1", nodes=[node], certificate="none", image_pull_secret=None
    )
    made = pod_template(Program.DEVICE_PLUGIN, args)
    made["metadata"]["name"] = "plugin"
    made["spec"]["nodeName"] = node
    return made


@pytest.fixture
def host(kube_api: KubeCluster, namespace: str, kubelets: Kubelets) -> Iterator[Host]:
    """A host whose plugin has registered, all GPUs free."""
    kubelet = kubelets("hgx")
    with kube_api.api() as api:
        host = Host(kube_api, kubelet, namespace, api)
        api.apply(crd())
        eventually(lambda: api.request("GET", LEASES)[0] == 200)
        for module in range(1, 9):
            new_lease(api.request, host.name, module)
            host.free(module)
        role = f"device-plugin-{namespace}"
        rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": role}}
        rules = RULES["cluster"]["device-plugin"]
        api.create({**rbac, "kind": "ClusterRole", "rules": rules})
        api.create(
            {
                **rbac,
                "kind": "ClusterRoleBinding",
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role,
                },
                "subjects": [
                    {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
                ],
            }
        )  # fmt: skip
        core = f"/api/v1/namespaces/{namespace}"
        config = {"metadata": {"name": "settings"}, "data": {SETTINGS_KEY: settings(host.name)}}
        host.post(f"{core}/configmaps", config)
        host.post(f"{core}/pods", plugin_pod(host.name))
        eventually(host.offers(8, 8))
        yield host
        for kind in ("clusterrolebindings", "clusterroles"):
            api.delete(f"/apis/rbac.authorization.k8s.io/v1/{kind}/{role}")
        for module in range(1, 9):
            api.delete(f"{LEASES}/{host.name}-gpu{module}")


def test_from_the_gate_to_running_and_back_and_nobody_else_gets_its_gpus(host: Host) -> None:
    host.request("p", 2)
    host.grant(3, "p")
    assert host.phase("p") == "Pending"
    assert "nodeName" not in host.pod("p")["spec"]
    # A pod that is not the lease's is rejected by the kubelet.
    host.request("thief", 1)
    host.let_go("thief")
    eventually(lambda: host.phase("thief") == "Failed")
    status = host.pod("thief")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "not leased to this pod" in status["message"] or "together" in status["message"]
    assert host.allocated() == set()

    host.let_go("p")
    host.wait_for_running("p")
    assert host.pod("p")["spec"]["nodeName"] == host.name
    assert host.allocated() == {1, 3}
    checkpoint = json.loads(host.kubelet.node().checkpoint.read_text())
    (given,) = checkpoint["allocations"]
    assert given["devices"] == ["11", "13"]
    assert given["cdi"] == [f"{RESOURCE}=11", f"{RESOURCE}=13"]
    assert "simulated container any:1" in host.kubectl("logs", "p")

    def told() -> bool:
        events = host.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").split()
        return {"Scheduled", "SandboxCreated", "Started"} <= set(events)

    # Who does something tells of it a moment later.
    eventually(told)

    host.api.delete(f"/api/v1/namespaces/{host.namespace}/pods/p")
    path = f"/api/v1/namespaces/{host.namespace}/pods/p"
    eventually(lambda: host.api.request("GET", path)[0] == 404)
    assert host.allocated() == {1, 3}
    for module in (1, 3):
        host.move(module, "Releasing")
    eventually(lambda: host.allocated() == set())
    eventually(host.offers(8, 6))


def test_kubelet_and_plugin_are_killed_and_nothing_is_lost(host: Host) -> None:
    host.request("p", 4)
    host.grant(1, "p")
    host.let_go("p")
    host.wait_for_running("p")

    killed = host.plugin()
    killed.kill()
    # That no GPU is on offer meanwhile is over so soon that nobody need see it.
    eventually(lambda: host.plugin() != killed)
    eventually(lambda: host.ask_plugin("/readyz"))
    eventually(host.offers(8, 8))

    host.kubelet.kill()
    host.kubelet.start()
    eventually(host.offers(8, 8))
    assert host.allocated() == {1, 2, 3, 4}
    assert host.phase("p") == "Running"
    (given,) = json.loads(host.kubelet.node().checkpoint.read_text())["allocations"]
    assert given["devices"] == ["11", "12", "13", "14"]

    host.request("q", 4)
    host.grant(2, "q")
    host.let_go("q")
    host.wait_for_running("q")
    assert host.allocated() == set(range(1, 9))


def test_a_quarantined_gpu_leaves_the_nodes_capacity_and_the_plugin_says_how_it_does(
    host: Host,
) -> None:
    host.move(8, "Quarantined", reason="FirmwareChanged")
    eventually(host.offers(8, 7))
    host.move(8, "Resetting", cycle=2, recheck="now")
    host.move(8, "Scrubbing", "Verifying", "Free")
    eventually(host.offers(8, 8))

    counted = 'gpu_clusters_device_plugin_devices{health="healthy"} 8.0'
    eventually(lambda: counted in host.ask_plugin("/metrics"))
    process = host.plugin()
    process.terminate()
    process.wait(PATIENCE_SECONDS)
    for line in host.kubectl("logs", "plugin", "--previous=false").splitlines():
        assert json.loads(line)["level"] in ("info", "warning"), line
