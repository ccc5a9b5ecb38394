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
from gpuclusters.lease.model import lease_name
from gpuclusters.tenancy.model import TenancySpec, tenancy_object
from lab import images, nodes
from lab.files import read_json
from lab.hosts.hardware.board import board
from lab.images.names import REGISTRY
from lab.nodes.configuration import KATA_HANDLER
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import REAL_NODE
from tests.lab.nodes.real_stack import CONTROLLERS, NODE, PATIENCE, RESOURCE, RealStack, real_stack

pytestmark = REAL_NODE

_SPACE = "tenant-acme"
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
        eventually(lambda: made.phases() == ["Free"] * 8, "eight GPUs are free")
        yield made


def asked(stack: RealStack, gpus: int, script: str = "echo it runs; sleep 1000 & wait") -> str:
    """The path of a container of the tenant that runs, with so many GPUs."""
    wanted = {
        "image": images.BUSYBOX, "gpus": gpus, "cpu": 1, "memoryGib": 1,
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


def the_pod(stack: RealStack) -> dict[str, Any]:
    (pod,) = stack.found(f"/api/v1/namespaces/{_SPACE}/pods")["items"]
    return dict(pod)


def users(stack: RealStack) -> list[str]:
    """What holds partitions of the host, as it sees it."""
    return [user["holder"] for user in (read_json(stack.host.virtual_machines) or {}).values()]


def test_a_tenant_gets_a_container_with_its_gpus(stack: RealStack) -> None:
    node = stack.node()
    assert "gpu-clusters.dev/stand-in" not in node["labels"]
    assert node["labels"][KATA_LABEL] == "true"
    path = asked(stack, 2)

    # In the container: the two GPUs of its lease, by the host's own numbers.
    pod = the_pod(stack)
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    assert pod["spec"]["runtimeClassName"] == KATA_HANDLER
    mine = {
        _GROUPS[lease["module"]]
        for lease in stack.leases()
        if (lease.get("holder") or {}).get("podUid") == uid
    }
    assert len(mine) == 2
    seen = stack.run_in(_SPACE, name, "ls", "/dev/vfio").stdout
    assert set(seen.split()) == {*mine, "vfio"}
    assert users(stack) == [f"{_SPACE}/{name}"]

    # Its log comes through our API, and only to its tenant.
    log = f"http://127.0.0.1:{stack.port}{path}/logs"
    eventually(lambda: read(log, stack.token("acme")) == "it runs\n", "its log comes")
    assert stack.call("globex", "GET", path).status in (403, 404)

    assert stack.call("acme", "DELETE", path).status in (200, 202, 204)
    eventually(lambda: stack.phases() == ["Free"] * 8, "all GPUs are free again")
    assert users(stack) == []


def test_a_tenant_names_no_device(stack: RealStack) -> None:
    """Neither to the API server, which refuses the pod, nor past it: runc is not told."""
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
    spec = {"securityContext": nobody, "containers": [container]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "names-a-device",
            "namespace": _SPACE,
            "annotations": {"cdi.k8s.io/x": f"{RESOURCE}=8"},
        },
        "spec": {"runtimeClassName": KATA_HANDLER, **spec},
    }
    eventually(lambda: "metadata.annotations" in refused(stack, pod), "it is refused")
    # Where nothing refuses it.
    outside = {**pod, "metadata": {**pod["metadata"], "namespace": "default"}}
    del container["imagePullPolicy"]
    created = stack.kubectl("create", "-f", "-", given=outside)
    assert created.returncode == 0, created.stderr
    assert stack.run_in("default", "names-a-device", "true").returncode == 0
    assert "No such file" in stack.run_in("default", "names-a-device", "ls", "/dev/vfio").stderr
    stack.kubectl("delete", "pod", "--namespace=default", "names-a-device", "--now")


def refused(stack: RealStack, pod: dict[str, Any]) -> str:
    """Why a pod is not taken; one that is taken goes again: a rule counts a moment after it is made."""
    answer = stack.kubectl("create", "-f", "-", given=pod)
    if answer.returncode == 0:
        stack.kubectl("delete", "--ignore-not-found", "--now", "-f", "-", given=pod)
    return answer.stderr


def test_a_log_is_followed_while_it_is_written(stack: RealStack) -> None:
    """What a container says after somebody has begun to listen comes too, and its end is the log's."""
    path = asked(stack, 1, "trap 'echo and more' USR1; echo it runs; while :; do sleep 1; done")
    log = f"http://127.0.0.1:{stack.port}{path}/logs?follow=true"
    with followed(log, stack.token("acme"), b"it runs\n") as answer:
        # Only now: the connection has been open since before it is said.
        name = the_pod(stack)["metadata"]["name"]
        assert stack.run_in(_SPACE, name, "kill", "-USR1", "1").returncode == 0
        assert answer.readline() == b"and more\n"
        assert stack.call("acme", "DELETE", path).status in (200, 202, 204)
        assert answer.read() == b""
    eventually(lambda: stack.phases() == ["Free"] * 8, "all GPUs are free again")


@contextlib.contextmanager
def followed(url: str, token: str, first: bytes) -> Iterator[http.client.HTTPResponse]:
    """An answer that goes on, after its first line; asked for again until there is a log to read."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    begun: list[http.client.HTTPResponse] = []

    def begins() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer = urllib.request.urlopen(request, timeout=PATIENCE)
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
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    assert pod["spec"]["nodeName"] == NODE
    before = {lease["module"]: lease for lease in stack.leases()}
    held = held_by(stack, uid, "Leased")
    assert len(held) == 4
    nodes.control(stack.nodes, NODE, "cable", "stop")
    eventually(lambda: stack.node()["conditions"]["Ready"] == "Unknown", "it is NotReady")
    # Deleted while nobody can tell whether it still runs.
    space = f"--namespace={_SPACE}"
    assert stack.kubectl("delete", "pod", space, name, "--wait=false").returncode == 0
    eventually(lambda: held_by(stack, uid, "Releasing") == held, "its GPUs are being released")
    # That the API server forgets it is no proof of its end either: its container runs on.
    forget = ("delete", "pod", space, name, "--force", "--grace-period=0")
    assert stack.kubectl(*forget).returncode == 0
    assert stack.found(f"/api/v1/namespaces/{_SPACE}/pods")["items"] == []
    kept(stack, uid, held)
    # Controllers that begin anew have nothing but what is written.
    begun_anew(stack)
    kept(stack, uid, held)
    assert users(stack) == [f"{_SPACE}/{name}"]
    nodes.control(stack.nodes, NODE, "cable", "start")
    eventually(lambda: stack.node()["conditions"]["Ready"] == "True", "it is Ready")
    eventually(lambda: stack.phases() == ["Free"] * 8, "all GPUs are free again")
    assert users(stack) == []
    assert stack.call("acme", "GET", path).status == 404
    # Not without having been reset and looked at.
    cycles = {
        lease["module"]
        for lease in stack.leases()
        if lease["cycle"] > before[lease["module"]]["cycle"]
    }
    assert cycles == held


def held_by(stack: RealStack, uid: str, phase: str) -> set[int]:
    """The GPUs in this phase that this pod has."""
    return {
        lease["module"]
        for lease in stack.leases()
        if lease["phase"] == phase and (lease.get("holder") or {}).get("podUid") == uid
    }


def kept(stack: RealStack, uid: str, modules: set[int]) -> None:
    """See these GPUs stay the pod's, until the controllers have decided about them once more, after now.

    What they say of one that waits for its node is taken away: they say it again with their next decision.
    """
    wiped = json.dumps({"status": {"message": "taken away by a test"}})
    for module in modules:
        target = (
            lease_name(NODE, module),
            "--subresource=status",
            "--type=merge",
            "--patch",
            wiped,
        )
        done = stack.kubectl("patch", "gpulease", *target)
        assert done.returncode == 0, done.stderr

    def said() -> bool:
        assert held_by(stack, uid, "Releasing") == modules
        found = {lease["module"]: lease for lease in stack.leases()}
        return all(found[m]["message"].startswith(f"{NODE} ") for m in modules)

    eventually(said, "the controllers say why its GPUs wait")
    assert held_by(stack, uid, "Releasing") == modules


def begun_anew(stack: RealStack) -> None:
    """Restart the controllers; it ends when the new ones lead."""

    def leader() -> str:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{CONTROLLERS}/leases/{ELECTION}"
        return str(stack.found(path)["spec"].get("holderIdentity") or "")

    first = leader()
    restart = ("rollout", "restart", "deployment/controllers", f"--namespace={CONTROLLERS}")
    assert stack.kubectl(*restart).returncode == 0
    eventually(lambda: leader() not in ("", first), "other controllers lead")


def read(url: str, token: str) -> str:
    """What is there; nothing while it cannot be had."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return str(answer.read().decode())
    except (OSError, http.client.HTTPException):
        return ""
