"""A tenant's container on a real node: asked for at our API, leased by our controllers, run by containerd.

API, controllers and device plugin run as the pods that we ship, with the rights that we ship, and reach the
simulated HGX host under the node over SSH and Redfish. Its CDI specification is what `CdiSpec` wrote there,
the devices are the host's. The virtual machine is emulated with runc.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from caas.controllers.__main__ import ELECTION
from gpuclusters.container_api.client import Answer
from gpuclusters.core.errors import UnreachableError
from gpuclusters.kata.model import KATA_LABEL
from gpuclusters.lease.model import RECHECK_ANNOTATION, lease_name
from gpuclusters.tenancy.model import TenancySpec, tenancy_object
from gpuclusters.tenancy.programs import Program
from lab import images, nodes
from lab.files import read_json
from lab.hosts.hardware.board import board
from lab.images.names import REGISTRY
from lab.nodes.configuration import KATA_HANDLER, KATA_STAND_IN_ROOT
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import REAL_NODE
from tests.lab.nodes.real_stack import ACCOUNTS, NODE, RESOURCE, RealStack, real_stack

pytestmark = REAL_NODE

_SPACE = "tenant-acme"
_PODS = f"/api/v1/namespaces/{_SPACE}/pods"
_PATIENCE = 300.0
_GROUPS = {
    module: str(gpu.iommu_group) for module, gpu in board("supermicro-hgx-h100").gpus.items()
}
_SIZE = {"cpu": "100m", "memory": "64Mi"}
_TENANCY = TenancySpec.model_validate(
    {
        "tenant": "acme", "namespace": _SPACE, "gpus": 4, "sizes": [1, 2, 4],
        "quota": {"hard": {f"requests.{RESOURCE}": "4", "pods": "10"}},
        "limits": [{"type": "Container", "default": _SIZE, "defaultRequest": _SIZE}],
        "runtimeClasses": [KATA_HANDLER], "images": [REGISTRY],
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStack]:
    with (
        pytest.MonkeyPatch.context() as patch,
        real_stack(tmp_path_factory.mktemp("story") / "lab", patch) as made,
    ):
        made.declared(tenancy_object(_TENANCY))
        made.all_free()
        yield made


def asked(stack: RealStack, gpus: int, script: str = "echo it runs; sleep 1000 & wait") -> str:
    """The path of a container of the tenant that runs, with so many GPUs."""
    wanted = {
        "image": images.BUSYBOX, "gpus": gpus,
        # It ends when it is told to, instead of half a minute later.
        "command": ["sh", "-c", f"trap exit TERM; {script}"],
    }  # fmt: skip
    answers: list[Answer] = []

    def accepted() -> bool:
        answers.append(stack.call("acme", "POST", "/v1/containers", wanted))
        return answers[-1].status == 201

    eventually(accepted, "the tenancy is ready")
    path = f"/v1/containers/{answers[-1].body['id']}"
    eventually(lambda: state(stack, path) == "running", "it runs")
    return path


def state(stack: RealStack, path: str) -> str:
    """What the API says of a container; nothing while it does not."""
    try:
        answer = stack.call("acme", "GET", path)
    except UnreachableError:
        return ""
    return str(answer.body["state"]) if answer.status == 200 else ""


def ended(stack: RealStack, *paths: str) -> None:
    """These containers end, and the next tenant may have their GPUs."""
    for path in paths:
        assert stack.call("acme", "DELETE", path).status in (200, 202, 204)
    stack.all_free()
    assert users(stack) == []


def the_pods(stack: RealStack) -> list[dict[str, Any]]:
    """The tenant's, oldest first."""
    pods = stack.got(_PODS)["items"]
    return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))


def the_pod(stack: RealStack) -> dict[str, Any]:
    (pod,) = the_pods(stack)
    return pod


def users(stack: RealStack) -> list[str]:
    """What holds partitions of the host, as it sees it."""
    return [user["holder"] for user in (read_json(stack.host.virtual_machines) or {}).values()]


def held_by(stack: RealStack, pod: dict[str, Any], phase: str = "Leased") -> set[int]:
    """The GPUs in this phase that this pod has."""
    uid = pod["metadata"]["uid"]
    return {
        lease["module"]
        for lease in stack.leases()
        if lease["phase"] == phase and (lease.get("holder") or {}).get("podUid") == uid
    }


def has_its_gpus(stack: RealStack, pod: dict[str, Any], count: int) -> None:
    """So many, and in the container exactly these, by the host's own numbers."""
    mine = {_GROUPS[module] for module in held_by(stack, pod)}
    assert len(mine) == count
    seen = stack.run_in(_SPACE, pod["metadata"]["name"], "ls", "/dev/vfio").stdout
    assert set(seen.split()) == {*mine, "vfio"}


def test_a_tenant_gets_a_container_with_its_gpus(stack: RealStack) -> None:
    labels = stack.node(NODE)["metadata"]["labels"]
    assert "gpu-clusters.dev/stand-in" not in labels
    assert labels[KATA_LABEL] == "true"
    path = asked(stack, 2)
    pod = the_pod(stack)
    assert pod["spec"]["runtimeClassName"] == KATA_HANDLER
    has_its_gpus(stack, pod, 2)
    assert users(stack) == [f"{_SPACE}/{pod['metadata']['name']}"]
    # By the handler that stands for Kata.
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    assert container in stack.in_node(NODE, "ls", f"{KATA_STAND_IN_ROOT}/k8s.io").split()

    # Its log comes through our API, and only to its tenant.
    log = f"http://127.0.0.1:{stack.port}{path}/logs"
    eventually(lambda: read(log, stack.bearer("acme")) == "it runs\n", "its log comes")
    assert stack.call("globex", "GET", path).status in (403, 404)
    ended(stack, path)


def test_a_kubelet_and_a_plugin_that_restart_lose_nothing(stack: RealStack) -> None:
    path = asked(stack, 2)
    pod = the_pod(stack)
    nodes.control(stack.folder, NODE, "kubelet", "restart")
    plugins = f"--namespace={ACCOUNTS.namespace(Program.DEVICE_PLUGIN)}"
    stack.kubectl("delete", "pod", "--all", plugins, "--grace-period=1")
    other = asked(stack, 1)
    first, second = the_pods(stack)
    has_its_gpus(stack, second, 1)
    assert first["metadata"]["uid"] == pod["metadata"]["uid"]
    has_its_gpus(stack, first, 2)
    assert stack.restarts(_SPACE, first["metadata"]["name"]) == 0
    ended(stack, path, other)


def test_an_unhealthy_gpu_is_not_offered(stack: RealStack) -> None:
    def offered() -> tuple[str, str]:
        status = stack.node(NODE)["status"]
        return status["capacity"][RESOURCE], status["allocatable"][RESOURCE]

    eventually(lambda: offered() == ("8", "8"), "all GPUs are offered")
    name = lease_name(NODE, 4)
    said = json.dumps({"status": {"phase": "Quarantined", "reason": "FirmwareChanged"}})
    stack.kubectl("patch", "gpulease", name, "--subresource=status", "--type=merge", "-p", said)
    eventually(lambda: offered() == ("8", "7"), "seven GPUs are offered")
    stack.kubectl("annotate", "gpulease", name, f"{RECHECK_ANNOTATION}=now")
    eventually(lambda: offered() == ("8", "8"), "all GPUs are offered again")
    stack.all_free()


def test_a_pod_without_a_lease_gets_no_gpu(stack: RealStack) -> None:
    limits = {"limits": {RESOURCE: "1"}}
    stack.pod("default", "thief", "sleep 1000", container={"resources": limits})

    def starts() -> str:
        return str(stack.found("default", "thief")["status"].get("reason", ""))

    eventually(starts, "the kubelet refuses it")
    assert starts() == "UnexpectedAdmissionError"
    assert all(not lease.get("holder") for lease in stack.leases())
    stack.kubectl("delete", "pod", "thief")


def test_a_tenant_names_no_device(stack: RealStack) -> None:
    """Neither to the API server, which refuses the pod, nor past it: runc is not told."""
    metadata = {"annotations": {"cdi.k8s.io/x": f"{RESOURCE}=8"}}
    container = {
        "name": "c", "image": images.BUSYBOX, "imagePullPolicy": "Always",
        "command": ["sh", "-c", "sleep 1000"],
        "resources": {"limits": _SIZE},
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
    eventually(lambda: "metadata.annotations" in refused(stack, pod), "it is refused")
    # Where nothing refuses it; and root of it cannot make itself one either.
    for name, its in (("in-a-vm", {"runtimeClassName": KATA_HANDLER}), ("in-none", {})):
        stack.pod("default", name, "sleep 1000", metadata=metadata, nodeName=NODE, **its)
        stack.ready("default", name)
        look = "ls /dev/vfio; mknod /tmp/gpu c 10 196 && : < /tmp/gpu"
        said = stack.run_in("default", name, "sh", "-c", look).stderr
        assert "No such file" in said
        assert "Operation not permitted" in said
        stack.kubectl("delete", "pod", name, "--now")


def refused(stack: RealStack, pod: dict[str, Any]) -> str:
    """Why a pod is not taken; one that is taken goes again: a rule counts a moment after it is made."""
    why = stack.create(pod)
    if not why:
        stack.create(pod, "delete", "--ignore-not-found", "--now")
    return why


def test_a_log_is_followed_while_it_is_written(stack: RealStack) -> None:
    """What a container says after somebody has begun to listen comes too, and its end is the log's."""
    path = asked(stack, 1, "trap 'echo and more' USR1; echo it runs; while :; do sleep 1; done")
    log = f"http://127.0.0.1:{stack.port}{path}/logs?follow=true"
    with followed(log, stack.bearer("acme"), b"it runs\n") as answer:
        # Only now: the connection has been open since before it is said.
        name = the_pod(stack)["metadata"]["name"]
        assert stack.run_in(_SPACE, name, "kill", "-USR1", "1").returncode == 0
        assert answer.readline() == b"and more\n"
        assert stack.call("acme", "DELETE", path).status in (200, 202, 204)
        assert answer.read() == b""
    stack.all_free()


@contextlib.contextmanager
def followed(url: str, token: str, first: bytes) -> Iterator[http.client.HTTPResponse]:
    """An answer that goes on, after its first line; asked for again until there is a log to read."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    begun: list[http.client.HTTPResponse] = []

    def begins() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer = urllib.request.urlopen(request, timeout=_PATIENCE)
            if answer.readline() == first:
                begun.append(answer)
                return True
            answer.close()
        return False

    eventually(begins, "its first line comes")
    with begun[0] as answer:
        yield answer


def test_a_lost_node_keeps_its_gpus(stack: RealStack) -> None:
    """The controllers and the API live on, and know no more than that nobody answers there."""
    path = asked(stack, 4)
    pod = the_pod(stack)
    name = pod["metadata"]["name"]
    assert pod["spec"]["nodeName"] == NODE
    before = {lease["module"]: lease for lease in stack.leases()}
    held = held_by(stack, pod)
    assert len(held) == 4
    nodes.control(stack.folder, NODE, "cable", "stop")
    eventually(lambda: not stack.is_ready(NODE), "it is NotReady")
    # Deleted while nobody can tell whether it still runs.
    space = f"--namespace={_SPACE}"
    stack.kubectl("delete", "pod", space, name, "--wait=false")
    eventually(lambda: held_by(stack, pod, "Releasing") == held, "its GPUs are being released")
    # That the API server forgets it is no proof of its end either: its container runs on.
    stack.kubectl("delete", "pod", space, name, "--force", "--grace-period=0")
    assert the_pods(stack) == []
    kept(stack, pod, held)
    # Controllers that begin anew have nothing but what is written.
    begun_anew(stack)
    kept(stack, pod, held)
    assert users(stack) == [f"{_SPACE}/{name}"]
    nodes.control(stack.folder, NODE, "cable", "start")
    eventually(lambda: stack.is_ready(NODE), "it is Ready")
    stack.all_free()
    assert users(stack) == []
    assert stack.call("acme", "GET", path).status == 404
    # Not without having been reset and looked at.
    cycles = {
        lease["module"]
        for lease in stack.leases()
        if lease["cycle"] > before[lease["module"]]["cycle"]
    }
    assert cycles == held


def kept(stack: RealStack, pod: dict[str, Any], modules: set[int]) -> None:
    """See these GPUs stay the pod's, until the controllers have decided about them once more, after now.

    What they say of one that waits for its node is taken away: they say it again with their next decision.
    """
    wiped = json.dumps({"status": {"message": "taken away by a test"}})
    merge = ("--subresource=status", "--type=merge", "--patch", wiped)
    stack.kubectl("patch", "gpulease", *(lease_name(NODE, m) for m in modules), *merge)

    def said() -> bool:
        assert held_by(stack, pod, "Releasing") == modules
        found = {lease["module"]: lease for lease in stack.leases()}
        return all(found[m]["message"].startswith(f"{NODE} ") for m in modules)

    eventually(said, "the controllers say why its GPUs wait")


def begun_anew(stack: RealStack) -> None:
    """Restart the controllers; it ends when the new ones lead."""
    home = ACCOUNTS.namespace(Program.CONTROLLERS)

    def leader() -> str:
        lease = stack.got(f"/apis/coordination.k8s.io/v1/namespaces/{home}/leases/{ELECTION}")
        return str(lease["spec"].get("holderIdentity") or "")

    first = leader()
    stack.kubectl("rollout", "restart", "deployment/controllers", f"--namespace={home}")
    eventually(lambda: leader() not in ("", first), "other controllers lead")


def read(url: str, token: str) -> str:
    """What is there; nothing while it cannot be had."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            return str(answer.read().decode())
    except (OSError, http.client.HTTPException):
        return ""
