"""Containers over the API: made once, seen by their tenant alone, never beyond what it may have."""

import asyncio
from typing import Any

import pytest

from caas.cluster import ClusterError, ConflictError
from gpuclusters.container_api.container import CONTAINER_LABEL, LEASE_GATE, REQUEST_ANNOTATION
from gpuclusters.tenancy.isolation import TENANT_LABEL
from tests.caas.api.apikit import (
    CASES,
    Api,
    kind,
    lease,
    node,
    played,
    playing,
    served,
    tenancy,
)


@played
async def test_a_request_becomes_a_gated_pod_in_the_tenants_namespace(api: Api) -> None:
    answer = await api.post("acme", gpus=2, name="training", env={"TOKEN": "s3cret"})
    assert answer.status_code == 201
    told = answer.json()
    assert (told["state"], told["gpus"], told["name"]) == ("queued", 2, "training")
    assert "s3cret" not in answer.text
    (pod,) = api.cluster.pods
    assert pod["metadata"]["name"] == told["id"]
    assert answer.headers["location"] == f"/v1/containers/{told['id']}"
    assert pod["metadata"]["namespace"] == "tenant-acme"
    assert pod["metadata"]["labels"][TENANT_LABEL] == "acme"
    # A digest of the request is kept and nothing else of it.
    assert pod["metadata"]["annotations"].keys() == {REQUEST_ANNOTATION}
    assert pod["spec"]["schedulingGates"] == [{"name": LEASE_GATE}]


@played
async def test_what_was_made_is_read_at_once_and_reading_asks_the_cluster_nothing(api: Api) -> None:
    made = (await api.post("acme")).json()
    before = api.cluster.calls.copy()
    assert (await api.get("acme", f"/v1/containers/{made['id']}")).json() == made
    assert (await api.get("acme", "/v1/containers")).json()["items"] == [made]
    for path in ("capacity", "tenancy"):
        assert (await api.get("acme", f"/v1/{path}")).status_code == 200
    assert api.cluster.calls == before


@played
async def test_a_container_made_through_another_copy_is_found(api: Api) -> None:
    await api.made()
    (pod,) = api.cluster.pods
    api.cluster.server.watchers.clear()  # the watch is late
    pod["metadata"]["name"] = pod["metadata"]["labels"][CONTAINER_LABEL] = "c-late"
    api.cluster.put("pods", pod)
    assert (await api.get("acme", "/v1/containers/c-late")).status_code == 200
    assert kind(await api.get("globex", "/v1/containers/c-late")) == "404 not-found"


@played
async def test_another_tenants_container_is_as_absent_as_one_that_never_was(api: Api) -> None:
    made, none = await api.made(), f"c-{'0' * 20}"
    for path in ("", "/logs", "/events"):
        answers, costs = [], []
        for container in (made, none):
            before = api.cluster.calls["get"]
            answers.append(await api.get("globex", f"/v1/containers/{container}{path}"))
            costs.append(api.cluster.calls["get"] - before)
        foreign, absent = answers
        assert kind(foreign) == kind(absent) == "404 not-found"
        assert {**foreign.json(), "requestId": ""} == {**absent.json(), "requestId": ""}
        assert foreign.headers.keys() == absent.headers.keys()
        assert costs == [1, 1], "time tells what words do not"
    assert (await api.get("globex", "/v1/containers")).json()["items"] == []
    for container in (made, none):
        assert (await api.delete("globex", container)).status_code == 204
    (pod,) = api.cluster.pods
    assert "deletionTimestamp" not in pod["metadata"]


@pytest.mark.parametrize("labels", [{}, {CONTAINER_LABEL: "another", TENANT_LABEL: "acme"}])
@played
async def test_a_pod_in_the_namespace_that_the_api_did_not_make_is_not_shown(
    api: Api, labels: dict[str, str]
) -> None:
    metadata = {"name": "other", "namespace": "tenant-acme", "labels": labels}
    await api.happens("pods", {"metadata": metadata})
    assert kind(await api.get("acme", "/v1/containers/other")) == "404 not-found"
    assert (await api.get("acme", "/v1/containers")).json()["items"] == []


@played
async def test_a_key_makes_one_container_of_one_tenant(api: Api) -> None:
    answers = await asyncio.gather(*(api.post("acme", key="k") for _ in range(20)))
    answers.append(await api.post("acme", key="k"))
    assert {kind(one) for one in answers} == {"201"}
    assert len({one.text for one in answers}) == 1
    replayed = [one.headers.get("idempotency-replayed") for one in answers]
    assert replayed.count("true") == 20
    assert kind(await api.post("acme", key="k", gpus=2)) == "422 idempotency-key-reused"
    assert len(api.cluster.pods) == 1
    other = await api.post("globex", key="k")
    assert other.json()["id"] != answers[0].json()["id"]
    assert "idempotency-replayed" not in other.headers


@played
async def test_duplicates_that_meet_at_the_cluster_collapse(api: Api) -> None:
    """As through two copies of the program: the store of this one does not know the pod yet."""
    await api.made(key="k")
    async with served(issuer=api.issuer) as other:
        other.cluster.server.watchers.clear()
        other.cluster.put("pods", api.cluster.pods[0])
        again = await other.post("acme", key="k")
        assert (again.status_code, again.headers.get("idempotency-replayed")) == (201, "true")
        assert kind(await other.post("acme", key="k", gpus=2)) == "422 idempotency-key-reused"
        assert len(other.cluster.pods) == 1


@pytest.mark.parametrize("key", [None, "k"])
@played
async def test_a_creation_whose_answer_was_lost_makes_one_container(
    api: Api, key: str | None
) -> None:
    api.cluster.lose_answers = 1
    assert kind(await api.post("acme", key=key)) == "201"
    assert len(api.cluster.pods) == 1


@playing(maxContainers=3)
async def test_at_once_no_more_containers_are_made_than_a_tenant_may_have(api: Api) -> None:
    answers = await asyncio.gather(*(api.post("globex") for _ in range(30)))
    kinds = [kind(one) for one in answers]
    assert kinds.count("201") == len(api.cluster.pods) == 3
    assert set(kinds) == {"201", "409 too-many-containers"}
    api.cluster.remove("pods", api.cluster.pods[0]["metadata"]["name"], "tenant-globex")
    await api.settle()
    assert kind(await api.post("globex")) == "201"


@played
async def test_a_size_that_the_tenancy_does_not_allow_is_refused(api: Api) -> None:
    await api.happens("tenancies", tenancy("acme", gpus=8, sizes=[1, 2]))
    answer = await api.post("acme", gpus=4)
    assert kind(answer) == "422 size-not-allowed"
    assert answer.json()["allowed"] == [1, 2]
    assert api.cluster.pods == []


def changed(body: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], **metadata}}


@pytest.mark.parametrize(
    ("there", "answer"),
    [
        (tenancy("acme", ready=False), "503 tenancy-not-ready"),
        # Ready, but of what it was before its last change.
        (changed(tenancy("acme"), generation=2), "503 tenancy-not-ready"),
        ({**tenancy("acme"), "status": {}}, "503 tenancy-not-ready"),
        (changed(tenancy("acme"), deletionTimestamp="2026-11-21"), "409 tenancy-ending"),
    ],
    ids=["not ready", "changing", "unseen", "ending"],
)
@played
async def test_nothing_starts_where_the_isolation_is_not_enforced(
    api: Api, there: dict[str, Any], answer: str
) -> None:
    await api.happens("tenancies", there)
    refused = await api.post("acme")
    assert kind(refused) == answer
    assert api.cluster.pods == []
    if refused.status_code == 503:
        assert refused.headers["retry-after"]
        assert (await api.get("acme", "/v1/tenancy")).json()["ready"] is False


@played
async def test_deleting_may_be_repeated(api: Api) -> None:
    made = await api.made()
    for _ in range(2):
        answer = await api.delete("acme", made)
        assert (answer.status_code, answer.json()["state"]) == (202, "deleting")
    assert (await api.get("acme", f"/v1/containers/{made}")).json()["state"] == "deleting"
    assert api.cluster.calls["delete"] == 1
    api.cluster.remove("pods", made, "tenant-acme")
    await api.settle()
    assert (await api.delete("acme", made)).status_code == 204
    assert kind(await api.get("acme", f"/v1/containers/{made}")) == "404 not-found"


@played
async def test_pages_give_every_container_once_or_those_in_one_state(api: Api) -> None:
    made = [await api.made("globex") for _ in range(7)]
    found: list[str] = []
    path = "/v1/containers?limit=3"
    while True:
        page = (await api.get("globex", path)).json()
        found += [one["id"] for one in page["items"]]
        if page["next"] is None:
            break
        assert len(page["items"]) == 3
        path = f"/v1/containers?limit=3&cursor={page['next']}"
    assert found == made
    await api.delete("globex", made[3])
    await api.settle()
    rest = (await api.get("globex", "/v1/containers?state=queued")).json()["items"]
    assert [one["id"] for one in rest] == made[:3] + made[4:]


@played
async def test_a_lease_that_is_held_for_a_container_makes_it_reserving(api: Api) -> None:
    made = await api.made()
    uid = api.cluster.pods[0]["metadata"]["uid"]
    for held, state in (
        (lease("hgx-01", 3, "Activating", uid), "reserving"),
        (lease("hgx-01", 3, "Free"), "queued"),
    ):
        await api.happens("gpuleases", held)
        assert (await api.get("acme", f"/v1/containers/{made}")).json()["state"] == state


@played
async def test_machines_out_of_service_or_away_are_no_free_capacity(api: Api) -> None:
    api.cluster.put("gpuleases", lease("hgx-01", 5, "Scrubbing"))
    cordoned = node("hgx-01", cordoned=True)
    for nodes, free, why, fours in (
        ([cordoned, node("hgx-02")], 8, {"Cordoned": 7}, (2, 1)),
        ([cordoned, node("hgx-02", ready="Unknown")], 0, {"Cordoned": 7, "NotReady": 8}, (0, 3)),
        ([node("hgx-01")], 7, {"Gone": 8}, (1, 2)),
        ([node("hgx-01"), node("hgx-02")], 15, {}, (3, 0)),
    ):
        if len(nodes) == 1:
            api.cluster.remove("nodes", "hgx-02")
        await api.happens("nodes", *nodes)
        told = (await api.get("acme", "/v1/capacity")).json()
        assert told["gpus"] == {
            "total": 16, "free": free, "unschedulable": sum(why.values()), "unschedulableBy": why,
            "recycling": 1, "quarantined": 0,
        }  # fmt: skip
        assert told["sizes"][2] == {
            "gpus": 4, "total": 4, "free": fours[0], "unschedulable": fours[1], "quarantined": 0,
        }  # fmt: skip


@played
async def test_capacity_counts_partitions_and_tells_of_nobody_else(api: Api) -> None:
    await api.post("globex", gpus=2)
    phases = {1: "Quarantined", 2: "Leased", 4: "Scrubbing"}
    await api.happens(
        "gpuleases",
        *(lease("hgx-01", module, phase, "someone") for module, phase in phases.items()),
    )
    answer = await api.get("acme", "/v1/capacity")
    told = answer.json()
    assert (told["gpus"]["free"], told["gpus"]["quarantined"]) == (13, 1)
    # Module 1 is in the pair 1+3, in the four 1-4 and in the eight; 2 and 4 are a pair.
    assert told["sizes"] == [
        {"gpus": 1, "total": 16, "free": 13, "unschedulable": 0, "quarantined": 1},
        {"gpus": 2, "total": 8, "free": 6, "unschedulable": 0, "quarantined": 1},
        {"gpus": 4, "total": 4, "free": 3, "unschedulable": 0, "quarantined": 1},
        {"gpus": 8, "total": 2, "free": 1, "unschedulable": 0, "quarantined": 1},
    ]
    for secret in ("globex", "hgx", "someone"):
        assert secret not in answer.text


@played
async def test_events_are_told_without_machines(api: Api) -> None:
    made = await api.made()
    for number, (reason, message) in enumerate(
        [
            ("Scheduled", f"assigned tenant-acme/{made} to hgx-01"),
            ("FailedScheduling", "0/2 nodes are available"),
            ("Pulled", "pulled the image on hgx-01"),
            ("FailedCreatePodSandBox", "vfio 0000:0f:00.0 on hgx-01"),
        ]
    ):
        api.cluster.event(api.cluster.pods[0], 9 - number, reason, message)
    answer = await api.get("acme", f"/v1/containers/{made}/events")
    told = [(one["reason"], one["message"]) for one in answer.json()["items"]]
    assert told == [
        ("FailedCreatePodSandBox", None),
        ("Pulled", "pulled the image on a host"),
        ("Scheduled", None),
    ]


@played
async def test_a_cluster_that_is_away_is_a_problem_that_goes_away(api: Api) -> None:
    made = await api.made()
    api.cluster.down = True
    for answer in [
        await api.post("acme"),
        await api.delete("acme", made),
        await api.get("acme", "/v1/containers/c-unknown"),
        await api.get("acme", f"/v1/containers/{made}/events"),
    ]:
        assert kind(answer) == "503 cluster-unavailable"
        assert answer.headers["retry-after"]
        assert "192.0.2.9" not in answer.text
    # What is known can still be read.
    assert (await api.get("acme", f"/v1/containers/{made}")).status_code == 200
    api.cluster.down = False
    assert (await api.post("acme")).status_code == 201


@playing(options={"kube_seconds": 0.05})
async def test_a_cluster_that_is_silent_does_not_hold_requests_for_ever(api: Api) -> None:
    api.cluster.silent = True
    answers = await asyncio.gather(*(api.post("acme", key=str(n)) for n in range(100)))
    assert {kind(one) for one in answers} == {"503 cluster-unavailable"}
    api.cluster.silent = False
    assert (await api.post("acme")).status_code == 201


@pytest.mark.parametrize(("said", "answer"), CASES["refusals_of_the_cluster"])
@played
async def test_a_refusal_of_the_cluster_is_explained(api: Api, said: str, answer: str) -> None:
    refusal = ClusterError(f"the API server: {said}", status=403, reason="Forbidden")
    if "Operation" in said:
        refusal = ConflictError(said, status=409, reason="Conflict")
    api.cluster.refusal = refusal
    refused = await api.post("acme")
    assert kind(refused) == answer
    assert ("retry-after" in refused.headers) is answer.startswith("503")
    assert api.cluster.pods == []
