"""Which images a tenant may name to the API, and what it is told when one does not come."""

from typing import Any

import pytest

from tests.caas.api.apikit import Api, FakeCluster, play, played, tenancy
from tests.caas.api.test_api_containers import kind
from tests.fixtures import image_cases

EMPTY: tuple[str, ...] = ()


def with_list(*images: str) -> FakeCluster:
    cluster = FakeCluster()
    cluster.put("tenancies", tenancy("acme", images=list(images)))
    cluster.put("namespaces", {"metadata": {"name": "gpu-clusters-system"}})
    return cluster


@pytest.mark.parametrize(
    ("listed", "images"), [(EMPTY, image_cases.PUBLIC), (image_cases.LISTED, image_cases.WITH_LIST)]
)
def test_an_image_that_the_tenancy_allows_is_taken(
    listed: tuple[str, ...], images: tuple[str, ...]
) -> None:
    async def act(api: Api) -> None:
        for image in images:
            answer = await api.post("acme", image=image)
            assert answer.status_code == 201, (image, answer.text)
            assert answer.json()["image"] == image
            await api.delete("acme", answer.json()["id"])
            api.cluster.remove("pods", answer.json()["id"], "tenant-acme")

    play(act, cluster=with_list(*listed))


@pytest.mark.attack(
    by="a tenant",
    tries="have a machine contact an address of the operator's network by an image's name",
    stopped_by="the API, which knows where each tenant's images come from",
)
@pytest.mark.parametrize(
    ("listed", "images", "said"),
    [
        (EMPTY, image_cases.NOT_PUBLIC, "registries with a name of the public DNS"),
        (EMPTY, ("LOCALHOST:5000/x:1", "BMC/x:1"), "registries with a name of the public DNS"),
        (image_cases.LISTED, image_cases.NOT_WITH_LIST, ", ".join(image_cases.LISTED)),
        (image_cases.LISTED, ("debian:12", "evil/ubuntu:1"), ", ".join(image_cases.LISTED)),
    ],
)
def test_no_other_image_is_taken_and_the_answer_says_which_are(
    listed: tuple[str, ...], images: tuple[str, ...], said: str
) -> None:
    async def act(api: Api) -> None:
        for image in images:
            answer = await api.post("acme", image=image)
            assert kind(answer) == "422 image-not-allowed", image
            assert said in answer.json()["detail"]
            assert answer.json()["allowed"] == list(listed)
        assert not api.cluster.pods

    play(act, cluster=with_list(*listed))


@played
async def test_an_image_of_docker_is_told_in_full(api: Api) -> None:
    made = (await api.post("acme", image="ubuntu:24.04")).json()
    assert made["image"] == "docker.io/library/ubuntu:24.04"
    (pod,) = api.cluster.pods
    assert pod["spec"]["containers"][0]["image"] == made["image"]


def test_a_tenant_is_told_where_its_images_come_from() -> None:
    async def act(api: Api) -> None:
        told = (await api.get("acme", "/v1/tenancy")).json()
        assert told["images"] == list(image_cases.LISTED)

    play(act, cluster=with_list(*image_cases.LISTED))


# What containerd and the kubelet say of one image at different addresses.
ANSWERS = {
    "refused": "dial tcp 10.0.0.7:443: connect: connection refused",
    "timed out": "dial tcp 10.0.0.7:443: i/o timeout",
    "no TLS": "http: server gave HTTP response to HTTPS client",
    "a certificate": "tls: failed to verify certificate: x509: certificate is valid for bmc-07.example",
    "no such name": "lookup bmc-07 on 10.0.0.53:53: no such host",
    "no such image": "registry.example.com/x:1: not found",
    "a password": "unexpected status from HEAD request: 401 Unauthorized",
}


@pytest.mark.attack(
    by="a tenant",
    tries="scan the machines' network by the texts of images that are not pulled",
    stopped_by="one reason and one sentence for every failure of a pull, in the state and in the events",
)
@played
async def test_why_an_image_does_not_come_is_not_told(api: Api) -> None:
    told = [await pulled(api, number, said) for number, said in enumerate(ANSWERS.values())]
    assert all(one == told[0] for one in told)
    state, events, log = told[0]
    assert state[:2] == ("starting", "ImageNotPulled")
    assert "cannot be pulled" in state[2]
    assert events == [("Failed", None), ("Failed", None), ("BackOff", None)]
    assert log == "409 not-started"


async def pulled(api: Api, number: int, said: str) -> Any:
    """State, events and log of a container whose image the node cannot pull for this reason."""
    made = (await api.post("acme")).json()["id"]
    (pod,) = api.cluster.pods
    where, reason = pod["metadata"]["namespace"], ["ErrImagePull", "ImagePullBackOff"][number % 2]
    if "unexpected status" in said:
        reason = "RegistryUnavailable"
    text = f'failed to pull and unpack image "registry.example.com/x:1": {said}'
    waiting = {"waiting": {"reason": reason, "message": text}}
    pod["spec"].pop("schedulingGates")
    pod["status"] = {"containerStatuses": [{"name": "main", "state": waiting}]}
    api.cluster.put("pods", pod)
    for place, (name, message) in enumerate(
        [
            ("Failed", f'Failed to pull image "registry.example.com/x:1": {text}'),
            ("Failed", f"Error: {reason}"),
            ("BackOff", f'Back-off pulling image "registry.example.com/x:1": {text}'),
        ]
    ):
        api.cluster.put(
            "events",
            {
                "metadata": {"name": f"{made}.{place}", "namespace": where},
                "involvedObject": {"uid": pod["metadata"]["uid"]},
                "reason": name,
                "message": message,
                "lastTimestamp": f"2026-11-21T12:00:0{place}Z",
            },
        )
    await api.settle()
    container = (await api.get("acme", f"/v1/containers/{made}")).json()
    events = (await api.get("acme", f"/v1/containers/{made}/events")).json()["items"]
    log = await api.get("acme", f"/v1/containers/{made}/logs")
    api.cluster.remove("pods", made, where)
    await api.settle()
    return (
        (container["state"], container["reason"], container["message"]),
        [(one["reason"], one["message"]) for one in events],
        kind(log),
    )
