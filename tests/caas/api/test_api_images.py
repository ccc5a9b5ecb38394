"""Which images a tenant may name to the API, and what it is told when one does not come."""

import pytest

from tests.caas.api.apikit import CASES, Api, kind, played, tenancy
from tests.fixtures import image_cases

EMPTY: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("listed", "images"), [(EMPTY, image_cases.PUBLIC), (image_cases.LISTED, image_cases.WITH_LIST)]
)
@played
async def test_an_image_that_the_tenancy_allows_is_taken(
    api: Api, listed: tuple[str, ...], images: tuple[str, ...]
) -> None:
    await api.happens("tenancies", tenancy("acme", images=list(listed)))
    assert (await api.get("acme", "/v1/tenancy")).json()["images"] == list(listed)
    for image in images:
        answer = await api.post("acme", image=image)
        assert answer.status_code == 201, (image, answer.text)
        assert answer.json()["image"] == image
        await api.delete("acme", answer.json()["id"])
        api.cluster.remove("pods", answer.json()["id"], "tenant-acme")


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
@played
async def test_no_other_image_is_taken_and_the_answer_says_which_are(
    api: Api, listed: tuple[str, ...], images: tuple[str, ...], said: str
) -> None:
    await api.happens("tenancies", tenancy("acme", images=list(listed)))
    for image in images:
        answer = await api.post("acme", image=image)
        assert kind(answer) == "422 image-not-allowed", image
        assert said in answer.json()["detail"]
        assert answer.json()["allowed"] == list(listed)
    assert not api.cluster.pods


@played
async def test_an_image_of_docker_is_told_in_full(api: Api) -> None:
    made = (await api.post("acme", image="ubuntu:24.04")).json()
    assert made["image"] == "docker.io/library/ubuntu:24.04"
    (pod,) = api.cluster.pods
    assert pod["spec"]["containers"][0]["image"] == made["image"]


@pytest.mark.attack(
    by="a tenant",
    tries="scan the machines' network by the texts of images that are not pulled",
    stopped_by="one reason and one sentence for every failure of a pull, in the state and in the events",
)
@played
async def test_why_an_image_does_not_come_is_not_told(api: Api) -> None:
    messages = set()
    for number, said in enumerate(CASES["pulls"]):
        made = await api.made()
        (pod,) = api.cluster.pods
        reason = ["ErrImagePull", "ImagePullBackOff"][number % 2]
        if "unexpected status" in said:
            reason = "RegistryUnavailable"
        text = f'failed to pull and unpack image "registry.example.com/x:1": {said}'
        waiting = {"waiting": {"reason": reason, "message": text}}
        for place, (name, message) in enumerate(
            [
                ("Failed", f'Failed to pull image "registry.example.com/x:1": {text}'),
                ("Failed", f"Error: {reason}"),
                ("BackOff", f'Back-off pulling image "registry.example.com/x:1": {text}'),
            ]
        ):
            api.cluster.event(pod, place, name, message)
        await api.become(made, "Pending", waiting)
        told = (await api.get("acme", f"/v1/containers/{made}")).json()
        assert (told["state"], told["reason"]) == ("starting", "ImageNotPulled")
        messages.add(told["message"])
        events = (await api.get("acme", f"/v1/containers/{made}/events")).json()["items"]
        shown = [(one["reason"], one["message"]) for one in events]
        assert shown == [("Failed", None), ("Failed", None), ("BackOff", None)]
        assert kind(await api.get("acme", f"/v1/containers/{made}/logs")) == "409 not-started"
        api.cluster.remove("pods", made, "tenant-acme")
        await api.settle()
    (message,) = messages
    assert "cannot be pulled" in message
