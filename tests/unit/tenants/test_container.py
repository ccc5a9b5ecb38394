"""A container as a pod, and as its tenant sees it."""

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gpuclusters.container_api import container
from gpuclusters.container_api.request import ContainerRequest
from gpuclusters.tenancy.isolation import TENANT_LABEL
from tests.fixtures.tables import beside

GPU = "nvidia.com/pgpu"
IMAGE = "registry.example.com/research/train:1.4"
PLACE = {
    "container": "c-1",
    "tenant": "acme",
    "namespace": "tenant-acme",
    "runtime_class": "kata-qemu-nvidia-gpu",
    "gpu_resource": GPU,
}


CASES = beside(__file__, "containers.yaml")


def request(**fields: Any) -> ContainerRequest:
    return ContainerRequest.model_validate({"image": IMAGE, "gpus": 2, **fields})


def made(**fields: Any) -> dict[str, Any]:
    """A pod as the API server answers it."""
    pod = copy.deepcopy(container.pod(request(**fields), **PLACE))
    pod["metadata"] |= {"creationTimestamp": "2026-11-21T12:00:00Z", "uid": "u"}
    pod["status"] = {"phase": "Pending"}
    return pod


def seen(pod: dict[str, Any], leases: Any = ()) -> container.ContainerAnswer:
    return container.view(pod, leases, gpu_resource=GPU)


def main_is(pod: dict[str, Any], **state: Any) -> dict[str, Any]:
    pod["spec"].pop("schedulingGates", None)
    pod["status"]["containerStatuses"] = [{"name": "main", "state": state}]
    return pod


def test_nothing_of_a_tenants_machine_is_oversold() -> None:
    asked = request(cpu=48, memoryGib=384, storageGib=100).resources(GPU)
    assert asked["requests"] == asked["limits"]
    assert asked["limits"] == {
        "cpu": "48",
        "memory": "384Gi",
        "ephemeral-storage": "100Gi",
        GPU: "2",
    }


def test_a_vm_of_huge_pages_is_as_large_and_asks_for_its_pages() -> None:
    asked = request(cpu=8, memoryGib=64).resources(GPU, huge_pages=True)
    # Kata makes the VM as large as the limit of memory; the scheduler counts the pages.
    assert asked["limits"]["memory"] == "64Gi"
    assert asked["limits"]["hugepages-1Gi"] == asked["requests"]["hugepages-1Gi"] == "64Gi"
    assert asked["requests"]["memory"] == "1Gi"
    for huge_pages in (True, False):
        assert request().resources(GPU, huge_pages=huge_pages)["limits"] == {GPU: "2"}


def test_a_tenants_label_cannot_pass_for_one_of_ours() -> None:
    pod = container.pod(request(labels={"tenant": "globex"}), **PLACE)
    assert pod["metadata"]["labels"]["user.gpu-clusters.dev/tenant"] == "globex"
    assert pod["metadata"]["labels"][TENANT_LABEL] == "acme"
    with pytest.raises(ValidationError):
        request(labels={TENANT_LABEL: "globex"})


def expanded(text: str) -> str:
    """What Kubernetes makes of `$` where no variable has the name (its own rules of expansion)."""
    return re.sub(r"\$(\$|\([^)]*\))?", lambda m: "$" if m[0] == "$$" else m[0], text)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40))
def test_the_words_of_a_command_reach_the_program_as_they_were_written(word: str) -> None:
    pod = made(command=[word], args=[word], env={"A": word})
    main = pod["spec"]["containers"][0]
    for passed in (main["command"][0], main["args"][0], main["env"][0]["value"]):
        assert expanded(passed) == word
    assert seen(pod).command == (word,)


@pytest.mark.parametrize("case", CASES["seen"].values(), ids=CASES["seen"])
def test_a_tenant_is_told_where_its_container_is_and_how_it_ended(case: dict[str, Any]) -> None:
    pod = main_is(made(), **case["main"]) if "main" in case else made()
    pod["metadata"] |= case.get("metadata", {})
    pod["status"] |= case.get("status", {})
    found = seen(pod).model_dump(mode="json")
    assert {key: found[key] for key in case["told"]} == case["told"]
    if case.get("by its machine"):
        assert (found["state"], case["status"]["phase"]) == ("failed", "Failed")
        assert found["message"].endswith("; ask for a new container")
        assert GPU not in found["message"]


def test_neither_host_nor_partition_is_told() -> None:
    pod = main_is(made(), waiting={"reason": "CreateContainerError", "message": "on hgx-01"})
    pod["metadata"]["annotations"][container.LEASE_ANNOTATION] = "hgx-01/3"
    pod["spec"]["nodeName"] = "hgx-01"
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "hgx-01"}
    pod["status"] |= {"hostIP": "192.0.2.1", "message": "hgx-01", "reason": "hgx-01 failed"}
    assert "hgx-01" not in repr(seen(pod))
    assert "192.0.2.1" not in repr(seen(pod))


def test_amounts_that_the_cluster_filled_in_are_told() -> None:
    pod = made()
    pod["spec"]["containers"][0]["resources"]["limits"] |= {"cpu": "1500m", "memory": "192Gi"}
    told = seen(pod)
    assert (told.cpu, told.memory_gib, told.storage_gib, told.gpus) == (1.5, 192, None, 2)


def test_a_key_names_one_container_per_tenant() -> None:
    assert container.identifier("acme", "k") == container.identifier("acme", "k")
    assert container.identifier("acme", "k") != container.identifier("globex", "k")
    # No two pairs of tenant and key may run together into the same text.
    assert container.identifier("a", "b-k") != container.identifier("a-b", "k")


def test_the_same_request_in_other_words_has_the_same_digest() -> None:
    one = request(env={"A": "1", "B": "2"})
    assert one.digest() == request(env={"B": "2", "A": "1"}, cpu=None, volumes=[]).digest()
    assert one.digest() != request(env={"A": "1"}).digest()
    assert request().digest() != request(volumes=[{"name": "a", "path": "/a"}]).digest()
    # As it was before there were any volumes: a key of that time still names its container.
    before = "33e761c029c111169700206361527be9ff3f851ea82c9a1cf664584cfe43c250"
    assert request().digest() == before


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in CASES["refused"].items() for value in values],
)
def test_what_cannot_be_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        request(**{name: value})
