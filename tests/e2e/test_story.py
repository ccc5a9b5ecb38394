"""Two customers on one machine: what each gets, what neither sees, and what happens to a GPU in between.

On real nodes, from `make up` to `make down`, where there are containers to look into. Then what only real
nodes can show of a tenant's container: API, controllers and device plugins run as the pods that we ship, with
the rights that we ship. The virtual machine is emulated with runc.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from caas.controllers.__main__ import ELECTION
from gpuclusters.lease.model import RECHECK_ANNOTATION, lease_name
from gpuclusters.tenancy.programs import Accounts, Program
from lab import images, nodes
from lab.files import read_json
from lab.hosts.folder import HostsFolder
from lab.hosts.hardware import tenant
from lab.hosts.hardware.board import board
from lab.nodes.configuration import KATA_HANDLER, KATA_STAND_IN_ROOT
from lab.nodes.network import token
from tests.e2e.conftest import Checkout, checkout
from tests.e2e.tenants import (
    Tenants,
    computed_in_containers,
    every_output_says_once_what_stands_for_kata,
    says_once_what_stands_for_kata,
)
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.waiting import eventually
from tests.lab.nodes import this_machine
from tests.lab.nodes.real_lab import REAL_NODE, RealLab, called

pytestmark = REAL_NODE

_SPACE = "tenant-acme"
_PATIENCE = 300.0
_RESOURCE = "nvidia.com/pgpu"
_GROUPS = {
    module: str(gpu.iommu_group) for module, gpu in board("supermicro-hgx-h100").gpus.items()
}
_ACCOUNTS = Accounts("gpu-clusters-system")
CYCLE = ["Releasing", "Resetting", "Scrubbing", "Verifying", "Free"]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The dev stack on real nodes, up; this machine is left as it was found."""
    folder = tmp_path_factory.mktemp("story-real")
    nodes = folder / "lab" / "nodes"
    before = this_machine.seen()
    with checkout(folder, nodes="real") as dev:
        dev.up()
        yield dev
    # `make down` has run.
    after = this_machine.seen(nodes)
    assert this_machine.of(after, token(nodes)) == []
    assert this_machine.changed(before, after, nodes) == {}


def looks_into_its_container(cluster: Tenants, who: str, container: str) -> None:
    """What only a real node can show: the container itself, with its devices and no others."""
    nodes = cluster.dev.nodes_of_api()
    assert set(nodes) == {"hgx-01", "hgx-02"}
    for node in nodes.values():
        assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://2.")
    namespace = f"tenant-{who}"
    pod = cluster.dev.kubectl("get", "pod", container, "-n", namespace)
    machine, gpus = pod["spec"]["nodeName"], board("supermicro-hgx-h100").gpus
    leased = [name.rpartition("gpu")[2] for name in cluster.held_by(who) if machine in name]
    groups = {str(gpus[int(module)].iommu_group) for module in leased}
    listed = cluster.dev.kubectl_text("exec", "-n", namespace, container, "--", "ls", "/dev/vfio")
    assert set(listed.split()) == {*groups, "vfio"}
    # Its log streams through our API.
    log = f"/v1/containers/{container}/logs"
    # It runs a moment before it says so.
    eventually(
        lambda: "stand-in" in str(cluster.call(who, "GET", log).body),
        "what the container says in its log",
    )


def two_tenants_on_one_machine_and_a_gpu_that_was_tampered_with(
    cluster: Tenants, tmp_path: Path
) -> None:
    """Tell it: from sixteen free GPUs to sixteen free GPUs."""
    # Nobody knows who had a new GPU: each is reset, cleared and verified before the first tenant.
    eventually(cluster.all_free, "sixteen free GPUs")
    machines = cluster.dev.lab / "hosts"

    ours = cluster.run("acme", 2)
    theirs = cluster.run("globex", 4)
    acmes, globexs = cluster.held_by("acme"), cluster.held_by("globex")
    assert (len(acmes), len(globexs)) == (2, 4)
    assert not acmes & globexs
    looks_into_its_container(cluster, "acme", ours)
    hosts = {name.rpartition("-")[0] for name in acmes | globexs}
    assert len(hosts) == 1, "the second request fits beside the first"
    (host,) = hosts

    # Neither sees the other, not even that it exists.
    listed = cluster.call("acme", "GET", "/v1/containers").body["items"]
    assert [one["id"] for one in listed] == [ours]
    foreign = cluster.call("acme", "GET", f"/v1/containers/{theirs}")
    never = cluster.call("acme", "GET", "/v1/containers/c-00000000000000000000")
    assert foreign.status == never.status == 404
    assert foreign.body["title"] == never.body["title"]

    done = cluster.dev.run("verify", "--level", "isolation", "--evidence", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (evidence,) = tmp_path.glob("*.json")
    outputs = {"verify": done.stdout, "evidence": evidence.read_text()}
    outputs["for people"] = evidence.with_suffix(".md").read_text()
    says_once_what_stands_for_kata(outputs, real=True)
    tried = len(json.loads(evidence.read_text())["findings"])
    assert tried > 114
    verdict = done.stdout.splitlines()[-1]
    assert verdict == f"{tried} of {tried} attempts were refused: isolation holds"
    assert cluster.dev.run("verify", "--check", str(evidence)).returncode == 0

    # acme goes: its GPUs come back by the whole way.
    before = {name: status["cycle"] for name, status in cluster.leases().items()}
    assert cluster.call("acme", "DELETE", f"/v1/containers/{ours}").status in (202, 204)
    eventually(lambda: {cluster.phases()[name] for name in acmes} == {"Free"}, "acme's GPUs free")
    # Events are sent behind what they tell of.
    eventually(
        lambda: all(cluster.history(name)[-5:] == CYCLE for name in acmes), "events of acme's GPUs"
    )
    for name in acmes:
        assert cluster.leases()[name]["cycle"] == before[name] + 1
    assert {cluster.phases()[name] for name in globexs} == {"Leased"}, "globex is not disturbed"

    # globex had root in its VM and put other firmware on one of its four GPUs.
    tampered = sorted(globexs)[1]
    module = int(tampered.rpartition("gpu")[2])
    tenant.use(machines, host, [module], "globex", firmware="66.6.66")
    cluster.call("globex", "DELETE", f"/v1/containers/{theirs}")
    eventually(
        lambda: {cluster.phases()[name] for name in globexs} <= {"Free", "Quarantined"},
        "globex's GPUs came back",
    )
    status = cluster.leases()[tampered]
    assert [name for name, phase in cluster.phases().items() if phase == "Quarantined"] == [
        tampered
    ]
    assert "66.6.66" in status["message"]

    # Capacity falls by the partitions that have this GPU, and by nothing else.
    gpus = {
        "total": 16, "free": 15, "unschedulable": 0, "unschedulableBy": {},
        "recycling": 0, "quarantined": 1,
    }  # fmt: skip
    eventually(lambda: cluster.capacity() == (gpus, {1: 4, 2: 2, 4: 1}), "less capacity")

    # The next tenant finds nothing of the last one, anywhere.
    again = cluster.run("acme", 4)
    assert not {tampered} & cluster.held_by("acme")
    cluster.call("acme", "DELETE", f"/v1/containers/{again}")
    cluster.dev.unharmed("hgx-01", "hgx-02")

    # An operator has repaired it and asks for another look.
    tenant.repair(machines, host, [module])
    cluster.dev.kubectl("annotate", "gpulease", tampered, "gpu-clusters.dev/recheck=repaired")
    eventually(cluster.all_free, "sixteen free GPUs again")
    assert cluster.dev.plan("--refresh") == [], "Pulumi sees no drift after hand-overs"


def test_the_story_of_two_tenants_whose_containers_compute(real: Checkout, tmp_path: Path) -> None:
    tenants = Tenants.of(real)
    every_output_says_once_what_stands_for_kata(tenants)
    done = real.run("verify", "--level", "proof", "--evidence", str(tmp_path / "proof"))
    assert done.returncode == 0, done.stdout + done.stderr
    computed_in_containers(tenants, tmp_path / "proof", sizes=(1, 2, 4))
    two_tenants_on_one_machine_and_a_gpu_that_was_tampered_with(tenants, tmp_path / "isolation")


@dataclass(frozen=True, slots=True)
class Stack(RealLab):
    """The nodes of this stack, and its API as a tenant calls it."""

    tenants: Tenants | None = None

    def call(self, who: str, method: str, path: str) -> Any:
        assert self.tenants is not None
        return self.tenants.call(who, method, path)

    def asked(self, gpus: int, script: str = "echo it runs; sleep 1000 & wait") -> str:
        """The path of a container of acme's that runs, with so many GPUs."""
        assert self.tenants is not None
        # It ends when it is told to, instead of half a minute later.
        command = ["sh", "-c", f"trap exit TERM; {script}"]
        wanted = {"image": images.BUSYBOX, "command": command, "storageGib": 1}
        made = self.tenants.run("acme", gpus, **wanted)
        return f"/v1/containers/{made}"

    def leases(self) -> list[dict[str, Any]]:
        """Status of each GPU's lease, with its name, machine and module."""
        items = self.got("/apis/gpu-clusters.dev/v1alpha1/gpuleases")["items"]
        return [
            {**lease.get("status", {}), **lease["spec"], "name": lease["metadata"]["name"]}
            for lease in items
        ]

    def all_free(self) -> None:
        """Wait until the next tenant may have any GPU."""
        free = ["Free"] * 16
        eventually(lambda: [one.get("phase") for one in self.leases()] == free, "all GPUs are free")

    def ended(self, *paths: str) -> None:
        """These containers end, and the next tenant may have their GPUs."""
        for path in paths:
            assert self.call("acme", "DELETE", path).status in (200, 202, 204)
        self.all_free()
        assert self.users() == []

    def users(self) -> list[str]:
        """What holds partitions of hosts, as they see it."""
        hosts = HostsFolder(self.cluster.folder / "hosts")
        found = [read_json(hosts.host(name).virtual_machines) or {} for name in self.names]
        return [user["holder"] for one in found for user in one.values()]

    def pods(self) -> list[dict[str, Any]]:
        """acme's, oldest first."""
        pods = self.got(f"/api/v1/namespaces/{_SPACE}/pods")["items"]
        return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def held_by(self, pod: dict[str, Any], phase: str = "Leased") -> dict[str, dict[str, Any]]:
        """The leases in this phase that this pod has, by name."""
        uid = pod["metadata"]["uid"]
        return {
            lease["name"]: lease
            for lease in self.leases()
            if lease["phase"] == phase and (lease.get("holder") or {}).get("podUid") == uid
        }

    def has_its_gpus(self, pod: dict[str, Any], count: int) -> None:
        """So many, and in the container exactly these, by the host's own numbers."""
        mine = {_GROUPS[lease["module"]] for lease in self.held_by(pod).values()}
        assert len(mine) == count
        seen = self.run_in(_SPACE, pod["metadata"]["name"], "ls", "/dev/vfio").stdout
        assert set(seen.split()) == {*mine, "vfio"}


@pytest.fixture
def stack(real: Checkout) -> Stack:
    """All of its GPUs are free."""
    cluster = KubeCluster(real.lab, real.lab / "kubeconfig", "")
    names = ("hgx-01", "hgx-02")
    made = Stack(real.lab / "nodes", cluster, names, tenants=Tenants.of(real))
    made.all_free()
    return made


def test_a_tenant_gets_a_container_with_its_gpus_by_the_handler_that_stands_for_kata(
    stack: Stack,
) -> None:
    path = stack.asked(2)
    (pod,) = stack.pods()
    assert pod["spec"]["runtimeClassName"] == KATA_HANDLER
    stack.has_its_gpus(pod, 2)
    assert stack.users() == [f"{_SPACE}/{pod['metadata']['name']}"]
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    listed = stack.in_node(pod["spec"]["nodeName"], "ls", f"{KATA_STAND_IN_ROOT}/k8s.io")
    assert container in listed.split()
    # Its log comes only to its tenant.
    assert stack.call("globex", "GET", f"{path}/logs").status in (403, 404)
    stack.ended(path)


def test_a_kubelet_and_a_plugin_that_restart_lose_nothing(stack: Stack) -> None:
    path = stack.asked(2)
    (pod,) = stack.pods()
    nodes.control(stack.folder, pod["spec"]["nodeName"], "kubelet", "restart")
    plugins = f"--namespace={_ACCOUNTS.namespace(Program.DEVICE_PLUGIN)}"
    stack.kubectl("delete", "pod", "--all", plugins, "--grace-period=1")
    other = stack.asked(1)
    first, second = stack.pods()
    stack.has_its_gpus(second, 1)
    assert first["metadata"]["uid"] == pod["metadata"]["uid"]
    stack.has_its_gpus(first, 2)
    assert stack.restarts(_SPACE, first["metadata"]["name"]) == 0
    stack.ended(path, other)


def test_an_unhealthy_gpu_is_not_offered(stack: Stack) -> None:
    def offered() -> tuple[str, str]:
        status = stack.node("hgx-01")["status"]
        return status["capacity"][_RESOURCE], status["allocatable"][_RESOURCE]

    eventually(lambda: offered() == ("8", "8"), "all GPUs are offered")
    name = lease_name("hgx-01", 4)
    said = json.dumps({"status": {"phase": "Quarantined", "reason": "FirmwareChanged"}})
    stack.kubectl("patch", "gpulease", name, "--subresource=status", "--type=merge", "-p", said)
    eventually(lambda: offered() == ("8", "7"), "seven GPUs are offered")
    stack.kubectl("annotate", "gpulease", name, f"{RECHECK_ANNOTATION}=now", "--overwrite")
    eventually(lambda: offered() == ("8", "8"), "all GPUs are offered again")


def test_a_pod_without_a_lease_gets_no_gpu(stack: Stack) -> None:
    limits = {"limits": {_RESOURCE: "1"}}
    stack.pod("default", "thief", "sleep 1000", container={"resources": limits})

    def refused() -> str:
        return str(stack.found("default", "thief")["status"].get("reason", ""))

    eventually(refused, "the kubelet refuses it")
    assert refused() == "UnexpectedAdmissionError"
    assert all(not lease.get("holder") for lease in stack.leases())
    stack.kubectl("delete", "pod", "thief")


def test_a_tenant_names_no_device(stack: Stack) -> None:
    """Neither to the API server, which refuses the pod, nor past it: runc is not told."""
    metadata = {"annotations": {"cdi.k8s.io/x": f"{_RESOURCE}=8"}}
    container = {
        "name": "c", "image": images.BUSYBOX, "imagePullPolicy": "Always",
        "command": ["sh", "-c", "sleep 1000"],
        "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
        },
    }  # fmt: skip
    nobody = {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | {"name": "names-a-device", "namespace": _SPACE},
        "spec": {
            "runtimeClassName": KATA_HANDLER,
            "securityContext": nobody,
            "containers": [container],
        },
    }
    create = [*stack.client, "create", "-f", "-"]
    assert "metadata.annotations" in called(create, json.dumps(pod)).stderr
    # Where nothing refuses it; and root of it cannot make itself one either.
    for name, its in (("in-a-vm", {"runtimeClassName": KATA_HANDLER}), ("in-none", {})):
        stack.pod("default", name, "sleep 1000", metadata=metadata, nodeName="hgx-01", **its)
        stack.ready("default", name)
        look = "ls /dev/vfio; mknod /tmp/gpu c 10 196 && : < /tmp/gpu"
        said = stack.run_in("default", name, "sh", "-c", look).stderr
        assert "No such file" in said
        assert "Operation not permitted" in said
        stack.kubectl("delete", "pod", name, "--now")


def test_a_log_is_followed_while_it_is_written(stack: Stack, real: Checkout) -> None:
    """What a container says after somebody has begun to listen comes too, and its end is the log's."""
    path = stack.asked(1, "trap 'echo and more' USR1; echo it runs; while :; do sleep 1; done")
    assert stack.tenants is not None
    log = f"{stack.tenants.api.target.removeprefix('API ')}{path}/logs?follow=true"
    with followed(log, real.lab, b"it runs\n") as answer:
        # Only now: the connection has been open since before it is said.
        (pod,) = stack.pods()
        assert stack.run_in(_SPACE, pod["metadata"]["name"], "kill", "-USR1", "1").returncode == 0
        assert answer.readline() == b"and more\n"
        assert stack.call("acme", "DELETE", path).status in (200, 202, 204)
        assert answer.read() == b""


@contextlib.contextmanager
def followed(url: str, lab: Path, first: bytes) -> Iterator[http.client.HTTPResponse]:
    """An answer to acme that goes on, after its first line; asked for again until there is a log to read."""
    token = (lab / "tokens" / "acme").read_text()
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    trusts = ssl.create_default_context(cafile=lab / "ca.crt")
    begun: list[http.client.HTTPResponse] = []

    def begins() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer = urllib.request.urlopen(request, timeout=_PATIENCE, context=trusts)
            if answer.readline() == first:
                begun.append(answer)
                return True
            answer.close()
        return False

    eventually(begins, "its first line comes")
    with begun[0] as answer:
        yield answer


def test_a_lost_node_keeps_its_gpus(stack: Stack) -> None:
    """The controllers and the API live on, and know no more than that nobody answers there.

    The last: controllers and API are where the scheduler may have put them, and not on the lost node.
    """
    path = stack.asked(4)
    (pod,) = stack.pods()
    name, lost = pod["metadata"]["name"], pod["spec"]["nodeName"]
    (left,) = {*stack.names} - {lost}
    run_on(stack, left)
    held = stack.held_by(pod)
    assert len(held) == 4
    nodes.control(stack.folder, lost, "cable", "stop")
    eventually(lambda: not stack.is_ready(lost), "it is NotReady")
    # Deleted while nobody can tell whether it still runs.
    space = f"--namespace={_SPACE}"
    stack.kubectl("delete", "pod", space, name, "--wait=false")
    releasing = "its GPUs are being released"
    eventually(lambda: {*stack.held_by(pod, "Releasing")} == {*held}, releasing)
    # That the API server forgets it is no proof of its end either: its container runs on.
    stack.kubectl("delete", "pod", space, name, "--force", "--grace-period=0")
    assert stack.pods() == []
    kept(stack, pod, lost, {*held})
    # Controllers that begin anew have nothing but what is written.
    begun_anew(stack)
    kept(stack, pod, lost, {*held})
    assert stack.users() == [f"{_SPACE}/{name}"]
    nodes.control(stack.folder, lost, "cable", "start")
    eventually(lambda: stack.is_ready(lost), "it is Ready")
    stack.all_free()
    assert stack.users() == []
    assert stack.call("acme", "GET", path).status == 404
    # Not without having been reset and looked at.
    for lease in stack.leases():
        if before := held.get(lease["name"]):
            assert lease["cycle"] > before["cycle"]


def run_on(stack: Stack, node: str) -> None:
    """Have the controllers and the API on this node alone."""
    there = {"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": node}}}}}
    for program in (Program.CONTROLLERS, Program.API):
        home = f"--namespace={_ACCOUNTS.namespace(program)}"
        stack.kubectl("patch", "deployment", str(program), home, f"--patch={json.dumps(there)}")
        words = ("rollout", "status", f"deployment/{program}", home, "--timeout=280s")
        stack.kubectl(*words)


def kept(stack: Stack, pod: dict[str, Any], node: str, leases: set[str]) -> None:
    """See these GPUs stay the pod's, until the controllers have decided about them once more, after now.

    What they say of one that waits for its node is taken away: they say it again with their next decision.
    """
    wiped = json.dumps({"status": {"message": "taken away by a test"}})
    merge = ("--subresource=status", "--type=merge", "--patch", wiped)
    stack.kubectl("patch", "gpulease", *leases, *merge)

    def said() -> bool:
        found = stack.held_by(pod, "Releasing")
        assert {*found} == leases
        return all(lease["message"].startswith(f"{node} ") for lease in found.values())

    eventually(said, "the controllers say why its GPUs wait")


def begun_anew(stack: Stack) -> None:
    """Restart the controllers; it ends when the new ones lead."""
    home = _ACCOUNTS.namespace(Program.CONTROLLERS)

    def leader() -> str:
        lease = stack.got(f"/apis/coordination.k8s.io/v1/namespaces/{home}/leases/{ELECTION}")
        return str(lease["spec"].get("holderIdentity") or "")

    first = leader()
    said = stack.kubectl("logs", "deployment/controllers", f"--namespace={home}")
    password = HostsFolder(stack.folder.parent / "hosts").bmc_password.read_text().strip()
    assert not [word for word in ("Traceback", password) if word in said]
    stack.kubectl("rollout", "restart", "deployment/controllers", f"--namespace={home}")
    eventually(lambda: leader() not in ("", first), "other controllers lead")
