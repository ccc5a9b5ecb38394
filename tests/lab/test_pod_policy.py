"""The pod policy on a real API server: which pods of a tenant are let in."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpuclusters.domain import admission_policy, isolation
from tests.fixtures.control_plane import KubeCluster

pytestmark = pytest.mark.lab

RUNTIME = "kata-qemu-nvidia-gpu"
GPU = "nvidia.com/pgpu"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"

Admit = Callable[[dict[str, Any]], str]


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


def asking(gpus: str, **spec: Any) -> dict[str, Any]:
    made = pod(**spec)
    made["spec"]["containers"][0]["resources"] = {"limits": {GPU: gpus}}
    return made


def annotated(**annotations: str) -> dict[str, Any]:
    made = pod()
    made["metadata"]["annotations"] = annotations
    return made


@pytest.fixture(scope="module")
def admit(kube_api: KubeCluster) -> Iterator[Admit]:
    """Asks the server, as a dry run; gives what it says against the pod, or nothing."""
    name = f"pods-{time.time_ns():x}"
    policy = admission_policy.pod_policy(
        runtime_classes=[RUNTIME], runtime_selector=["nvidia.com/cc.ready.state"], gpu_resource=GPU
    )
    binding = copy.deepcopy(admission_policy.pod_policy_binding(name))
    # Other tests have tenants too; this policy is for this test's namespace alone.
    binding["matchResources"]["namespaceSelector"]["matchLabels"] = {"test": name}
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
        for path, kind, spec in (
            (POLICIES, "ValidatingAdmissionPolicy", policy),
            (BINDINGS, "ValidatingAdmissionPolicyBinding", binding),
        ):
            body = {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}
            code, answer = api.request("POST", path, body)
            assert code == 201, answer
        runtime = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": RUNTIME},
            "handler": RUNTIME,
        }
        api.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)

        def ask(wanted: dict[str, Any]) -> str:
            path = f"/api/v1/namespaces/{name}/pods?dryRun=All"
            code, answer = api.request("POST", path, wanted)
            return "" if code == 201 else str(answer)

        deadline = time.monotonic() + 30
        bare = pod()
        del bare["spec"]["runtimeClassName"]
        while not ask(bare) or "serviceaccount" in ask(pod()).lower():
            assert time.monotonic() < deadline, "the policy is never enforced"
            time.sleep(0.1)
        yield ask
        api.delete(f"{BINDINGS}/{name}")
        api.delete(f"{POLICIES}/{name}")
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
        (annotated(**{"cdi.k8s.io/vfio": "nvidia.com/pgpu=1"}), "annotations"),
    ],
)
def test_a_door_out_of_the_vm_is_closed(admit: Admit, wanted: dict[str, Any], said: str) -> None:
    assert said in admit(wanted)


def test_two_containers_of_a_pod_cannot_both_have_gpus(admit: Admit) -> None:
    wanted = asking("1")
    second = {**wanted["spec"]["containers"][0], "name": "second"}
    wanted["spec"]["containers"].append(second)
    assert "one container of a pod has the GPUs" in admit(wanted)
