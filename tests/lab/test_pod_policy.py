"""The pod policy on a real API server: which pods of a tenant are let in."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from gpuclusters.container_api.container import LEASE_ANNOTATION, LEASE_GATE
from gpuclusters.container_api.container import pod as api_pod
from gpuclusters.container_api.request import ContainerRequest, MountAnswer
from gpuclusters.tenancy import intrusion, isolation
from lab.control_plane.kube import tls
from lab.control_plane.layout import Layout
from tests.fixtures import image_cases
from tests.fixtures.tables import beside
from tests.fixtures.tenancies import CONTROLLERS, GPU, PREFIX, RUNTIME, Request
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.lab

LISTED, UNSAID = "-listed", "-unsaid"
"""Endings of the namespaces of a tenant with a list of registries, and of one without the annotation."""
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
PODS: dict[str, Any] = beside(__file__, "pod_policy.yaml")


@dataclass(frozen=True)
class Admit:
    """Asks the server about pods in one tenant's namespace; answers what it says against them."""

    request: Request
    namespace: str

    def __call__(self, wanted: dict[str, Any], plural: str = "pods") -> str:
        path = f"/api/v1/namespaces/{self.namespace}/{plural}?dryRun=All"
        code, answer = self.request("POST", path, wanted)
        return "" if code == 201 else str(answer["message"])

    def of(self, tail: str) -> Admit:
        """The same for the namespace of that ending."""
        return Admit(self.request, self.namespace + tail)

    def change(self, user: str, name: str, patch: dict[str, Any], part: str = "") -> str:
        """A change by this user, who may do everything but what the policy refuses."""
        cluster = self.request.cluster
        who = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        kind = {"Content-Type": "application/strategic-merge-patch+json"}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}{part}"
        identity = tls(Layout.of(cluster.folder), "admin")
        with httpx.Client(verify=identity, base_url=cluster.url, timeout=120) as client:
            answer = client.patch(path, json=patch, headers=who | kind)
        return "" if answer.status_code == 200 else answer.text

    def from_the_api(self, mounts: tuple[MountAnswer, ...] = (), **more: Any) -> dict[str, Any]:
        """The pod that the API makes for two GPUs."""
        asked = {"image": "registry.example.com/x:1", "gpus": 2} | more
        return api_pod(
            ContainerRequest.model_validate(asked),
            container="c-1",
            tenant="acme",
            namespace=self.namespace,
            runtime_class=RUNTIME,
            gpu_resource=GPU,
            mounts=mounts,
        )


def pod(
    spec: dict[str, Any] | None = None,
    container: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    gpus: str = "",
) -> dict[str, Any]:
    """A pod that the policy lets in, changed."""
    waits = {"schedulingGates": [{"name": LEASE_GATE}]} if gpus else {}
    asks = {"resources": {"limits": {GPU: gpus}}} if gpus else {}
    made: dict[str, Any] = copy.deepcopy(PODS["base"])
    made["spec"]["containers"][0] |= asks | (container or {})
    made["spec"] |= waits | (spec or {})
    return {**made, "metadata": {"name": "probe", "annotations": annotations or {}}}


def service(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "probe"},
        "spec": {"ports": [{"port": 80}], **spec},
    }


@pytest.fixture(scope="module")
def admit(tenancy_api: Request) -> Iterator[Admit]:
    """Asks the server, as a dry run; gives what it says against the pod, or nothing."""
    name = f"{PREFIX}pods-{secrets.token_hex(4)}"
    spaces: dict[str, dict[str, str]] = {
        name: isolation.namespace_annotations([1, 2], []),
        name + LISTED: isolation.namespace_annotations([1, 2], image_cases.LISTED),
        name + UNSAID: {},
    }
    for space, notes in spaces.items():
        labels = {isolation.TENANT_LABEL: "acme"}
        metadata = {"labels": labels, "annotations": notes}
        tenancy_api.apply(f"/api/v1/namespaces/{space}", "v1", "Namespace", metadata=metadata)
    ask = Admit(tenancy_api, name)
    eventually(lambda: ask(pod(spec={"runtimeClassName": None})), "the policy is enforced")
    # Refused for two reasons: were one rule gone, it is a test that must say so.
    outside = service(type="NodePort", externalIPs=["203.0.113.7"])
    eventually(lambda: ask(outside, "services"), "that of services too")
    for space in spaces:
        account = f"/api/v1/namespaces/{space}/serviceaccounts/default"
        eventually(lambda account=account: tenancy_api.get(account))
    eventually(lambda: ask(pod()) == "")
    yield ask
    for space in spaces:
        tenancy_api("DELETE", f"/api/v1/namespaces/{space}")


def test_the_server_finds_no_fault_in_the_policies(admit: Admit) -> None:
    for policy in (admit.request.get(POLICIES) or {})["items"]:
        checking = policy.get("status", {}).get("typeChecking", {})
        assert not checking.get("expressionWarnings"), checking


@pytest.mark.parametrize("case", PODS["sound"])
def test_an_ordinary_pod_is_let_in(admit: Admit, case: str) -> None:
    assert admit(pod(**PODS["sound"][case])) == ""


def test_the_pod_that_the_api_makes_is_let_in(admit: Admit) -> None:
    more = {"cpu": 1, "memoryGib": 1, "storageGib": 1, "command": ["a"], "args": ["b"], "name": "n"}
    mounts = (MountAnswer(name="data", path="/data", read_only=True),)
    made = admit.from_the_api(mounts, env={"A": "b"}, labels={"a": "b"}, **more)
    assert admit(made) == ""


@pytest.mark.attack(
    by="a tenant",
    tries="make a pod that leaves its VM: every one that `gpu-clusters verify` tries",
    stopped_by="the pod policy alone, without Pod Security Admission",
)
def test_every_pod_that_verify_tries_is_refused(admit: Admit) -> None:
    sound = admit.from_the_api()
    assert admit(sound) == ""
    attempts = intrusion.forbidden_pods(sound, node="hgx-01", gpu_resource=GPU)
    assert [name for name, pod in attempts if not admit(pod)] == []


@pytest.mark.attack(
    by="the API's account",
    tries="make a pod that opens a door out of its VM, or takes what no lease gave",
    stopped_by="the pod policy, which lists what is allowed",
)
@pytest.mark.parametrize(
    ("said", "case"), [(said, case) for said, cases in PODS["refused"].items() for case in cases]
)
def test_a_door_out_of_the_vm_is_closed(admit: Admit, said: str, case: str) -> None:
    assert said.lower() in admit(pod(**PODS["refused"][said][case])).lower()


def test_public_registries_or_what_is_below_the_paths_of_a_list_are_allowed(admit: Admit) -> None:
    listed = admit.of(LISTED)
    assert [one for one in image_cases.PUBLIC if admit(pod(container={"image": one}))] == []
    assert [one for one in image_cases.WITH_LIST if listed(pod(container={"image": one}))] == []


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
    said = admit(pod(container={"image": image}))
    assert "name of the public DNS" in said or "the image is written in full" in said


@pytest.mark.attack(
    by="the API's account",
    tries="have an image pulled from beside the tenant's list: a longer path, name or port",
    stopped_by="the pod policy, which compares whole parts of a path",
)
@pytest.mark.parametrize("image", image_cases.NOT_WITH_LIST)
def test_a_list_allows_nothing_beside_its_paths(admit: Admit, image: str) -> None:
    said = admit.of(LISTED)(pod(container={"image": image}))
    assert f"images come from {', '.join(sorted(image_cases.LISTED))}" in said
    # A namespace that does not say where images come from has none.
    assert "images come from" in admit.of(UNSAID)(pod())


def test_no_service_opens_a_door_to_the_outside(admit: Admit) -> None:
    assert admit(service(), "services") == ""
    assert "externalIPs" in admit(service(externalIPs=["192.0.2.1"]), "services")
    for kind in ("NodePort", "LoadBalancer"):
        assert "ClusterIP" in admit(service(type=kind), "services")


@pytest.fixture
def gated(admit: Admit) -> Iterator[str]:
    """A pod that waits for its lease."""
    wanted = pod(container={"resources": {"limits": {GPU: "1", "cpu": "1", "memory": "1Gi"}}})
    wanted["spec"]["schedulingGates"] = [{"name": LEASE_GATE}]
    wanted["metadata"]["name"] = name = f"gated-{secrets.token_hex(4)}"
    pods = f"/api/v1/namespaces/{admit.namespace}/pods"
    code, answer = admit.request("POST", pods, wanted)
    assert code == 201, answer
    yield name
    admit.request("DELETE", f"{pods}/{name}")


@pytest.mark.attack(
    by="the API's account",
    tries="let a pod go without a lease, or change what a pod runs",
    stopped_by="the pod policy: a pod stays as it was made",
)
def test_only_the_lease_controller_lets_a_pod_go(admit: Admit, gated: str) -> None:
    changes = PODS["changes"]
    for name, said in changes["of a tenant"].items():
        assert said in admit.change("tenant", gated, changes[name]), name
    # Whoever has the controllers' account lets pods go, and runs nothing else in them.
    refused = admit.change(CONTROLLERS, gated, changes["another image"])
    assert "spec stays as it was made" in refused
    assert admit.change(CONTROLLERS, gated, changes["the whole lease"]) == ""
    # Afterwards the tenant may change what it may always change, and nothing of the lease.
    assert admit.change("tenant", gated, {"metadata": {"labels": {"a": "b"}}}) == ""
    assert LEASE_ANNOTATION in admit.change("tenant", gated, changes["another lease"])


@pytest.mark.attack(
    by="the API's account",
    tries="start a container in a running pod, or make the pod larger than its quota",
    stopped_by="the pod policy, which closes pods/ephemeralcontainers and pods/resize",
)
@pytest.mark.parametrize("user", ["tenant", CONTROLLERS])
def test_nobody_enters_or_enlarges_a_running_vm(admit: Admit, gated: str, user: str) -> None:
    for part, change in PODS["subresources"].items():
        said = admit.change(user, gated, {"spec": change}, part)
        assert "ephemeral containers are refused, and a pod keeps its size" in said
