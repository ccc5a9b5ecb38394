"""The pod policy on a real API server: which pods of a tenant are let in."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from gpuclusters.domain import admission_policy, isolation
from gpuclusters.domain.container import LEASE_ANNOTATION, LEASE_GATE
from lab.control_plane.kube import tls
from lab.control_plane.layout import Layout
from tests.fixtures.control_plane import KubeCluster

pytestmark = pytest.mark.lab

RUNTIME = "kata-qemu-nvidia-gpu"
GPU = "nvidia.com/pgpu"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"

CONTROLLERS = "system:serviceaccount:gpu-clusters-controllers:controllers"


@dataclass(frozen=True)
class Admit:
    """Asks the server about pods in one tenant's namespace; answers what it says against them."""

    cluster: KubeCluster
    namespace: str

    def __call__(self, wanted: dict[str, Any], plural: str = "pods") -> str:
        path = f"/api/v1/namespaces/{self.namespace}/{plural}?dryRun=All"
        with self.cluster.api() as api:
            code, answer = api.request("POST", path, wanted)
        return "" if code == 201 else answer.decode()

    def change(self, user: str, name: str, patch: dict[str, Any], part: str = "") -> str:
        """A change by this user, who may do everything but what the policy refuses."""
        layout = Layout.of(self.cluster.folder)
        who = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        kind = {"Content-Type": "application/strategic-merge-patch+json"}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}{part}"
        identity = tls(layout, "admin")
        with httpx.Client(verify=identity, base_url=self.cluster.url, timeout=120) as client:
            answer = client.patch(path, json=patch, headers=who | kind)
        return "" if answer.status_code == 200 else answer.text


def pod(**spec: Any) -> dict[str, Any]:
    """A pod that the policy lets in, changed."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": {
            "runtimeClassName": RUNTIME,
            "containers": [{"name": "main", "image": "registry.example.com/cuda"}],
            **spec,
        },
    }


GATED = {"schedulingGates": [{"name": LEASE_GATE}]}


def asking(gpus: str, **spec: Any) -> dict[str, Any]:
    made = pod(**(GATED | spec))
    made["spec"]["containers"][0]["resources"] = {"limits": {GPU: gpus}}
    return made


def annotated(**annotations: str) -> dict[str, Any]:
    made = pod()
    made["metadata"]["annotations"] = annotations
    return made


def container(**fields: Any) -> dict[str, Any]:
    made = pod()
    made["spec"]["containers"][0] |= fields
    return made


def service(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "probe"},
        "spec": {"ports": [{"port": 80}], **spec},
    }


@pytest.fixture(scope="module")
def admit(kube_api: KubeCluster) -> Iterator[Admit]:
    """Asks the server, as a dry run; gives what it says against the pod, or nothing."""
    name = f"pods-{time.time_ns():x}"
    policy = admission_policy.pod_policy(
        runtime_classes=[RUNTIME],
        runtime_selector=["nvidia.com/cc.ready.state"],
        gpu_resource=GPU,
        controllers=CONTROLLERS,
    )
    rules = {name: policy, f"{name}-services": admission_policy.service_policy()}
    group = "admissionregistration.k8s.io/v1"
    with kube_api.api() as api:
        api.create(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": name,
                    "labels": {isolation.TENANT_LABEL: "acme", "test": name},
                    "annotations": isolation.namespace_annotations([1, 2]),
                },
            }
        )
        for called, spec in rules.items():
            binding = copy.deepcopy(admission_policy.policy_binding(called))
            # Other tests have tenants too; this policy is for this test's namespace alone.
            binding["matchResources"]["namespaceSelector"]["matchLabels"] = {"test": name}
            for path, kind, content in (
                (POLICIES, "ValidatingAdmissionPolicy", spec),
                (BINDINGS, "ValidatingAdmissionPolicyBinding", binding),
            ):
                body = {"apiVersion": group, "kind": kind, "metadata": {"name": called}}
                code, answer = api.request("POST", path, {**body, "spec": content})
                assert code == 201, answer
        runtime = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": RUNTIME},
            "handler": RUNTIME,
        }
        api.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)

        ask = Admit(kube_api, name)
        deadline = time.monotonic() + 150
        bare = pod()
        del bare["spec"]["runtimeClassName"]
        while (
            not ask(bare)
            or "serviceaccount" in ask(pod()).lower()
            or not ask(service(type="NodePort"), "services")
        ):
            assert time.monotonic() < deadline, "the policy is never enforced"
            time.sleep(0.1)
        yield ask
        for called in rules:
            api.delete(f"{BINDINGS}/{called}")
            api.delete(f"{POLICIES}/{called}")
        api.delete(f"/api/v1/namespaces/{name}")


def test_the_server_finds_no_fault_in_the_policy(kube_api: KubeCluster, admit: Admit) -> None:
    with kube_api.api() as api:
        listed = api.get(POLICIES)
    for policy in listed["items"]:
        checking = policy.get("status", {}).get("typeChecking", {})
        assert not checking.get("expressionWarnings"), checking


@pytest.mark.parametrize(
    "wanted",
    [
        pod(),
        asking("1"),
        asking("2"),
        pod(nodeSelector={"nvidia.com/cc.ready.state": "false"}),
        pod(automountServiceAccountToken=False),
    ],
    ids=["plain", "one GPU", "two GPUs", "the runtime's own selector", "no token"],
)
def test_an_ordinary_pod_is_let_in(admit: Admit, wanted: dict[str, Any]) -> None:
    assert admit(wanted) == ""


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (pod(runtimeClassName=None), "runtimeClassName"),
        (asking("3"), "as many nvidia.com/pgpu as a partition has"),
        (asking("8"), "as many nvidia.com/pgpu as a partition has"),
        (pod(nodeName="hgx-01"), "nodeName"),
        (pod(nodeSelector={"kubernetes.io/hostname": "hgx-01"}), "nodeSelector"),
        (pod(schedulerName="mine"), "schedulerName"),
        (pod(tolerations=[{"operator": "Exists"}]), "tolerations"),
        (pod(automountServiceAccountToken=True), "automountServiceAccountToken"),
        (annotated(**{"io.katacontainers.config.hypervisor.kernel_params": "x"}), "annotations"),
        (pod(hostNetwork=True), "hostNetwork, hostPID and hostIPC"),
        (pod(hostPID=True), "hostNetwork, hostPID and hostIPC"),
        (pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), "hostPath"),
        (container(ports=[{"containerPort": 80, "hostPort": 80}]), "hostPort"),
        (container(securityContext={"privileged": True}), "privileged"),
        (asking("1", schedulingGates=[]), f"scheduling gate {LEASE_GATE}"),
        (annotated(**{LEASE_ANNOTATION: "hgx-01/3"}), "the lease controller's to set"),
        (annotated(**{"cdi.k8s.io/vfio": "nvidia.com/pgpu=1"}), "annotations"),
    ],
)
def test_a_door_out_of_the_vm_is_closed(admit: Admit, wanted: dict[str, Any], said: str) -> None:
    assert said in admit(wanted)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"externalIPs": ["192.0.2.1"]}, "externalIPs"),
        ({"type": "NodePort"}, "ClusterIP"),
        ({"type": "LoadBalancer"}, "ClusterIP"),
    ],
)
def test_no_service_opens_a_door_to_the_outside(
    admit: Admit, spec: dict[str, Any], said: str
) -> None:
    assert said in admit(service(**spec), "services")
    assert admit(service(), "services") == ""


def test_two_containers_of_a_pod_cannot_both_have_gpus(admit: Admit) -> None:
    wanted = asking("1")
    second = {**wanted["spec"]["containers"][0], "name": "second"}
    wanted["spec"]["containers"].append(second)
    assert "one container of a pod has the GPUs" in admit(wanted)


@pytest.fixture
def gated(kube_api: KubeCluster, admit: Admit) -> Iterator[str]:
    """A pod that waits for its lease."""
    wanted = asking("1")
    wanted["metadata"]["name"] = name = f"gated-{time.time_ns():x}"
    pods = f"/api/v1/namespaces/{admit.namespace}/pods"
    with kube_api.api() as api:
        code, answer = api.request("POST", pods, wanted)
        assert code == 201, answer
        yield name
        api.delete(f"{pods}/{name}")


LEASED: dict[str, Any] = {
    "metadata": {"annotations": {LEASE_ANNOTATION: "hgx-01/3"}},
    "spec": {
        "nodeSelector": {"kubernetes.io/hostname": "hgx-01"},
        "schedulingGates": [{"$patch": "delete", "name": LEASE_GATE}],
    },
}


def test_only_the_lease_controller_lets_a_pod_go(admit: Admit, gated: str) -> None:
    for part, said in (
        ({"spec": {"schedulingGates": LEASED["spec"]["schedulingGates"]}}, LEASE_GATE),
        ({"metadata": LEASED["metadata"]}, LEASE_ANNOTATION),
        ({"spec": {"nodeSelector": LEASED["spec"]["nodeSelector"]}}, "nodeSelector"),
    ):
        assert said in admit.change("tenant", gated, part)
    assert admit.change(CONTROLLERS, gated, LEASED) == ""
    # Afterwards the tenant may change what it may always change, and nothing of the lease.
    assert admit.change("tenant", gated, {"metadata": {"labels": {"a": "b"}}}) == ""
    moved = {"metadata": {"annotations": {LEASE_ANNOTATION: "hgx-02/3"}}}
    assert LEASE_ANNOTATION in admit.change("tenant", gated, moved)


def test_nobody_enters_a_vm_beside_its_container(admit: Admit, gated: str) -> None:
    intruder = {"name": "debug", "image": "registry.example.com/shell"}
    patch = {"spec": {"ephemeralContainers": [intruder]}}
    said = admit.change("tenant", gated, patch, "/ephemeralcontainers")
    assert "ephemeral containers are refused" in said
