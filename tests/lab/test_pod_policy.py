"""The pod policy on a real API server: which pods of a tenant are let in."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from gpuclusters.container_api.container import LEASE_ANNOTATION, LEASE_GATE
from gpuclusters.container_api.container import pod as api_pod
from gpuclusters.container_api.request import ContainerRequest, MountAnswer
from gpuclusters.tenancy import admission as admission_policy
from gpuclusters.tenancy import intrusion, isolation
from lab.control_plane.kube import tls
from lab.control_plane.layout import Layout
from tests.fixtures import image_cases
from tests.fixtures.control_plane import KubeCluster

pytestmark = pytest.mark.lab

RUNTIME = "kata-qemu-nvidia-gpu"
GPU = "nvidia.com/pgpu"
LISTED, UNSAID = "-listed", "-unsaid"
"""Endings of the namespaces of a tenant with a list of registries, and of one without the annotation."""
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

    def of(self, tail: str) -> Admit:
        """The same for the namespace of that ending."""
        return Admit(self.cluster, self.namespace + tail)

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
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.com/cuda:12",
                    "imagePullPolicy": "Always",
                }
            ],
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
        for tail, annotations in (
            ("", isolation.namespace_annotations([1, 2], [])),
            (LISTED, isolation.namespace_annotations([1, 2], image_cases.LISTED)),
            (UNSAID, {}),
        ):
            api.create(
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {
                        "name": name + tail,
                        "labels": {isolation.TENANT_LABEL: "acme", "test": name},
                        "annotations": annotations,
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
            or any("serviceaccount" in ask.of(tail)(pod()).lower() for tail in (LISTED, UNSAID))
            or not ask(service(type="NodePort"), "services")
        ):
            assert time.monotonic() < deadline, "the policy is never enforced"
            time.sleep(0.1)
        yield ask
        for called in rules:
            api.delete(f"{BINDINGS}/{called}")
            api.delete(f"{POLICIES}/{called}")
        for tail in ("", LISTED, UNSAID):
            api.delete(f"/api/v1/namespaces/{name}{tail}")


def test_the_server_finds_no_fault_in_the_policy(kube_api: KubeCluster, admit: Admit) -> None:
    with kube_api.api() as api:
        listed = api.get(POLICIES)
    for policy in listed["items"]:
        checking = policy.get("status", {}).get("typeChecking", {})
        assert not checking.get("expressionWarnings"), checking


VOLUME = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}


@pytest.mark.parametrize(
    "wanted",
    [
        pod(),
        asking("1"),
        asking("2"),
        pod(nodeSelector={"nvidia.com/cc.ready.state": "false"}),
        pod(volumes=[VOLUME]),
        pod(imagePullSecrets=[{"name": isolation.PULL_SECRET}]),
        container(resources={"limits": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}}),
    ],
    ids=[
        "plain",
        "one GPU",
        "two GPUs",
        "the runtime's own selector",
        "a claim",
        "the tenant's pull secret",
        "sizes",
    ],
)
def test_an_ordinary_pod_is_let_in(admit: Admit, wanted: dict[str, Any]) -> None:
    assert admit(wanted) == ""


def test_the_pod_that_the_api_makes_is_let_in(admit: Admit) -> None:
    request = ContainerRequest.model_validate(
        {"image": "registry.example.com/x:1", "gpus": 2, "cpu": 1, "memoryGib": 1, "storageGib": 1}
        | {"command": ["a"], "args": ["b"], "env": {"A": "b"}, "labels": {"a": "b"}, "name": "n"}
    )
    made = api_pod(
        request,
        container="c-1",
        tenant="acme",
        namespace=admit.namespace,
        runtime_class=RUNTIME,
        gpu_resource=GPU,
        mounts=[MountAnswer(name="data", path="/data", read_only=True)],
    )
    assert admit(made) == ""


@pytest.mark.attack(
    by="a tenant",
    tries="make a pod that leaves its VM: every one that `gpu-clusters verify` tries",
    stopped_by="the pod policy alone, without Pod Security Admission",
)
def test_every_pod_that_verify_tries_is_refused(admit: Admit) -> None:
    sound = api_pod(
        ContainerRequest.model_validate({"image": "registry.example.com/x:1", "gpus": 2}),
        container="c-1",
        tenant="acme",
        namespace=admit.namespace,
        runtime_class=RUNTIME,
        gpu_resource=GPU,
    )
    assert admit(sound) == ""
    attempts = intrusion.forbidden_pods(sound, node="hgx-01", gpu_resource=GPU)
    assert [name for name, pod in attempts if not admit(pod)] == []


def claims(*, container_has: dict[str, Any], **spec: Any) -> dict[str, Any]:
    made = pod(**spec)
    made["spec"]["containers"][0] |= container_has
    return made


def limits(**amounts: str) -> dict[str, Any]:
    return container(resources={"limits": amounts})


PROBE = {"httpGet": {"host": "192.0.2.1", "port": 443, "path": "/redfish"}}
TOKEN = {"serviceAccountToken": {"path": "token", "audience": "x"}}
CSI = {"driver": "nfs.csi.k8s.io", "volumeAttributes": {"server": "192.0.2.1", "share": "/"}}
NEIGHBOUR = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "namespaceSelector": {},
                "labelSelector": {"matchLabels": {"gpu-clusters.dev/tenant": "globex"}},
            }
        ]
    }
}


@pytest.mark.attack(
    by="the API's account",
    tries="make a pod that opens a door out of its VM, or takes what no lease gave",
    stopped_by="the pod policy, which lists what is allowed",
)
@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (pod(runtimeClassName=None), "runtimeClassName"),
        (asking("3"), "as many nvidia.com/pgpu as a partition has"),
        (asking("8"), "as many nvidia.com/pgpu as a partition has"),
        (pod(nodeName="hgx-01"), "spec may have none but these"),
        (pod(nodeSelector={"kubernetes.io/hostname": "hgx-01"}), "nodeSelector"),
        (pod(schedulerName="mine"), "schedulerName"),
        (pod(tolerations=[{"operator": "Exists"}]), "tolerations"),
        (pod(automountServiceAccountToken=True), "automountServiceAccountToken"),
        (pod(serviceAccountName="other"), "serviceaccount"),
        (pod(hostNetwork=True), "spec may have none but these"),
        (pod(hostPID=True), "spec may have none but these"),
        (pod(hostUsers=False), "spec may have none but these"),
        (pod(affinity=NEIGHBOUR), "spec may have none but these"),
        (pod(dnsPolicy="Default"), "dnsPolicy"),
        (pod(dnsPolicy="None", dnsConfig={"nameservers": ["192.0.2.1"]}), "dnsPolicy"),
        (pod(hostAliases=[{"ip": "192.0.2.1", "hostnames": ["x"]}]), "spec may have none"),
        (pod(imagePullSecrets=[{"name": "other"}]), "imagePullSecrets"),
        (pod(schedulingGates=[{"name": "example.com/wait"}]), "schedulingGates"),
        (pod(resources={"limits": {"cpu": "1"}}), "spec may have none but these"),
        (
            pod(initContainers=[{"name": "first", "image": "registry.example.com/x:1"}]),
            "spec may have none but these",
        ),
        (
            claims(
                container_has={"resources": {"claims": [{"name": "gpu"}]}},
                resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}],
            ),
            "spec may have none but these",
        ),
        (pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), "volumes may have none"),
        (pod(volumes=[{"name": "v", "csi": CSI}]), "volumes may have none"),
        (pod(volumes=[{"name": "v", "emptyDir": {}}]), "volumes may have none"),
        (pod(volumes=[{"name": "v", "secret": {"secretName": "pull"}}]), "volumes may have none"),
        (pod(volumes=[{"name": "v", "projected": {"sources": [TOKEN]}}]), "volumes may have none"),
        (pod(volumes=[VOLUME | {"name": f"v{n}"} for n in range(9)]), "at most 8 volumes"),
        (
            claims(
                container_has={
                    "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "other"}]
                },
                volumes=[VOLUME],
            ),
            "volumeMounts may have none",
        ),
        (container(ports=[{"containerPort": 80, "hostPort": 80}]), "a container may have none"),
        (container(startupProbe=PROBE), "a container may have none"),
        (container(lifecycle={"postStart": PROBE}), "a container may have none"),
        (container(securityContext={"runAsUser": 0}), "securityContext of a container"),
        (container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}), "no capabilities"),
        (
            container(
                env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "pull", "key": "x"}}}]
            ),
            "no values from other objects",
        ),
        (container(envFrom=[{"secretRef": {"name": "pull"}}]), "a container may have none"),
        (container(imagePullPolicy="IfNotPresent"), "imagePullPolicy must be Always"),
        (container(imagePullPolicy="Never"), "imagePullPolicy must be Always"),
        (limits(**{"nvidia.com/gpu": "1"}), "requests and limits"),
        (limits(**{"nvidia.com/mig-1g.10gb": "1"}), "requests and limits"),
        (limits(**{"hugepages-2Mi": "64Mi", "memory": "1Gi"}), "requests and limits"),
        (limits(**{"devices.kubevirt.io/kvm": "1"}), "requests and limits"),
        (asking("1", schedulingGates=[]), f"scheduling gate {LEASE_GATE}"),
        (annotated(**{LEASE_ANNOTATION: "hgx-01/3"}), "the lease controller's to set"),
        (annotated(**{"io.katacontainers.config.hypervisor.kernel_params": "x"}), "annotations"),
        (annotated(**{"cdi.k8s.io/vfio": "nvidia.com/pgpu=1"}), "annotations"),
        (annotated(**{"k8s.v1.cni.cncf.io/networks": "default/host"}), "annotations"),
        (annotated(**{"devices.nri.io/container.main": "- path: /dev/mem"}), "annotations"),
        (annotated(**{"io.kubernetes.cri-o.Devices": "/dev/mem"}), "annotations"),
    ],
)
def test_a_door_out_of_the_vm_is_closed(admit: Admit, wanted: dict[str, Any], said: str) -> None:
    assert said.lower() in admit(wanted).lower()


@pytest.mark.parametrize("image", image_cases.PUBLIC)
def test_without_a_list_every_public_registry_is_allowed(admit: Admit, image: str) -> None:
    assert admit(container(image=image)) == ""


@pytest.mark.attack(
    by="the API's account",
    tries="have a machine contact an address, a BMC or a name of its local network by an image's name",
    stopped_by="the pod policy, which asks the tenant's namespace where its images come from",
)
@pytest.mark.parametrize(
    "image",
    [*image_cases.NOT_PUBLIC, "ubuntu:24.04", "registry.example.com/x", "[::1]:5000/x:1", "x/y:1"],
)
def test_without_a_list_no_address_and_no_local_name_is_allowed(admit: Admit, image: str) -> None:
    said = admit(container(image=image))
    assert "name of the public DNS" in said or "the image is written in full" in said


@pytest.mark.parametrize("image", image_cases.WITH_LIST)
def test_a_list_allows_what_is_at_or_below_its_paths(admit: Admit, image: str) -> None:
    assert admit.of(LISTED)(container(image=image)) == ""


@pytest.mark.attack(
    by="the API's account",
    tries="have an image pulled from beside the tenant's list: a longer path, name or port",
    stopped_by="the pod policy, which compares whole parts of a path",
)
@pytest.mark.parametrize("image", image_cases.NOT_WITH_LIST)
def test_a_list_allows_nothing_beside_its_paths(admit: Admit, image: str) -> None:
    said = admit.of(LISTED)(container(image=image))
    assert f"images come from {', '.join(sorted(image_cases.LISTED))}" in said


def test_a_namespace_that_does_not_say_where_images_come_from_has_none(admit: Admit) -> None:
    assert "images come from" in admit.of(UNSAID)(pod())


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
    assert "a pod has one container" in admit(wanted)


@pytest.fixture
def gated(kube_api: KubeCluster, admit: Admit) -> Iterator[str]:
    """A pod that waits for its lease."""
    wanted = asking("1")
    wanted["spec"]["containers"][0]["resources"]["limits"] |= {"cpu": "1", "memory": "1Gi"}
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

LARGE = {"cpu": "64"}
OTHER_IMAGE = {"spec": {"containers": [{"name": "main", "image": "registry.example.com/other:1"}]}}


@pytest.mark.attack(
    by="the API's account",
    tries="let a pod go without a lease, or change what a pod runs",
    stopped_by="the pod policy: a pod stays as it was made",
)
def test_only_the_lease_controller_lets_a_pod_go(admit: Admit, gated: str) -> None:
    for part, said in (
        (
            {"spec": {"schedulingGates": LEASED["spec"]["schedulingGates"]}},
            "spec stays as it was made",
        ),
        ({"metadata": LEASED["metadata"]}, LEASE_ANNOTATION),
        ({"spec": {"nodeSelector": LEASED["spec"]["nodeSelector"]}}, "spec stays as it was made"),
        (OTHER_IMAGE, "spec stays as it was made"),
    ):
        assert said in admit.change("tenant", gated, part)
    # Whoever has the controllers' account lets pods go, and runs nothing else in them.
    assert "spec stays as it was made" in admit.change(CONTROLLERS, gated, OTHER_IMAGE)
    assert admit.change(CONTROLLERS, gated, LEASED) == ""
    # Afterwards the tenant may change what it may always change, and nothing of the lease.
    assert admit.change("tenant", gated, {"metadata": {"labels": {"a": "b"}}}) == ""
    moved = {"metadata": {"annotations": {LEASE_ANNOTATION: "hgx-02/3"}}}
    assert LEASE_ANNOTATION in admit.change("tenant", gated, moved)


@pytest.mark.attack(
    by="the API's account",
    tries="start a container in a running pod, or make the pod larger than its quota",
    stopped_by="the pod policy, which closes pods/ephemeralcontainers and pods/resize",
)
@pytest.mark.parametrize(
    ("part", "change"),
    [
        (
            "/ephemeralcontainers",
            {"ephemeralContainers": [{"name": "debug", "image": "registry.example.com/shell:1"}]},
        ),
        (
            "/resize",
            {"containers": [{"name": "main", "resources": {"limits": LARGE, "requests": LARGE}}]},
        ),
    ],
)
@pytest.mark.parametrize("user", ["tenant", CONTROLLERS])
def test_nobody_enters_or_enlarges_a_running_vm(
    admit: Admit, gated: str, user: str, part: str, change: dict[str, Any]
) -> None:
    said = admit.change(user, gated, {"spec": change}, part)
    assert "ephemeral containers are refused, and a pod keeps its size" in said
