"""Containers over the API: made once, seen by their tenant alone, never beyond what it may have."""

import asyncio
import copy
from typing import Any

import pytest

from caas.cluster import ClusterError, ConflictError
from gpuclusters.container_api.container import CONTAINER_LABEL, LEASE_GATE, REQUEST_ANNOTATION
from gpuclusters.tenancy.isolation import TENANT_LABEL
from tests.caas.api.apikit import Api, FakeCluster, lease, node, play, played, served, tenancy


def kind(answer: Any) -> str:
    """Status and short name of a problem."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    said = answer.json()
    assert said["status"] == answer.status_code
    assert said["requestId"] == answer.headers["x-request-id"]
    return f"{answer.status_code} {said['type'].rsplit('/', 1)[1]}"


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
    assert pod["spec"]["schedulingGates"] == [{"name": LEASE_GATE}]


@played
async def test_what_was_made_is_read_at_once(api: Api) -> None:
    made = (await api.post("acme")).json()
    assert (await api.get("acme", f"/v1/containers/{made['id']}")).json() == made
    assert (await api.get("acme", "/v1/containers")).json()["items"] == [made]


@played
async def test_reading_asks_the_cluster_nothing(api: Api) -> None:
    made = (await api.post("acme")).json()
    before = api.cluster.calls.copy()
    for path in ("/v1/containers", f"/v1/containers/{made['id']}", "/v1/capacity", "/v1/tenancy"):
        assert (await api.get("acme", path)).status_code == 200
    assert api.cluster.calls == before


@played
async def test_a_container_made_through_another_copy_is_found(api: Api) -> None:
    await api.post("acme")
    (pod,) = api.cluster.pods
    api.cluster._watchers["pods"].clear()  # the watch is late
    late = copy.deepcopy(pod)
    late["metadata"]["name"] = "c-late"
    late["metadata"]["labels"][CONTAINER_LABEL] = "c-late"
    api.cluster.put("pods", late)
    assert (await api.get("acme", "/v1/containers/c-late")).status_code == 200
    assert kind(await api.get("globex", "/v1/containers/c-late")) == "404 not-found"


@played
async def test_another_tenants_container_is_as_absent_as_one_that_never_was(api: Api) -> None:
    made = (await api.post("acme")).json()["id"]
    for path in ("", "/logs", "/events"):
        foreign = await api.get("globex", f"/v1/containers/{made}{path}")
        absent = await api.get("globex", f"/v1/containers/c-{'0' * 20}{path}")
        assert kind(foreign) == kind(absent) == "404 not-found"
        bodies = [{**one.json(), "requestId": ""} for one in (foreign, absent)]
        assert bodies[0] == bodies[1]
        assert foreign.headers.keys() == absent.headers.keys()
    assert (await api.get("globex", "/v1/containers")).json()["items"] == []
    assert (await api.delete("globex", made)).status_code == 204
    assert (await api.delete("globex", "c-none")).status_code == 204
    (pod,) = api.cluster.pods
    assert "deletionTimestamp" not in pod["metadata"]


@played
async def test_looking_for_a_foreign_container_costs_what_an_absent_one_costs(api: Api) -> None:
    made = (await api.post("acme")).json()["id"]
    costs = []
    for container in (made, "c-none"):
        before = api.cluster.calls["get"]
        await api.get("globex", f"/v1/containers/{container}")
        costs.append(api.cluster.calls["get"] - before)
    assert costs == [1, 1]


@played
async def test_a_pod_in_the_namespace_that_the_api_did_not_make_is_not_shown(api: Api) -> None:
    api.cluster.put("pods", {"metadata": {"name": "other", "namespace": "tenant-acme"}})
    await api.settle()
    assert kind(await api.get("acme", "/v1/containers/other")) == "404 not-found"
    assert (await api.get("acme", "/v1/containers")).json()["items"] == []


@played
async def test_a_repeated_request_makes_one_container(api: Api) -> None:
    first, second = await api.post("acme", key="k"), await api.post("acme", key="k")
    assert first.status_code == second.status_code == 201
    assert first.json() == second.json()
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert len(api.cluster.pods) == 1


@played
async def test_a_key_with_another_body_is_refused_and_changes_nothing(api: Api) -> None:
    await api.post("acme", key="k", gpus=1)
    assert kind(await api.post("acme", key="k", gpus=2)) == "422 idempotency-key-reused"
    assert len(api.cluster.pods) == 1


@played
async def test_two_tenants_may_use_the_same_key(api: Api) -> None:
    one, two = await api.post("acme", key="k"), await api.post("globex", key="k")
    assert one.json()["id"] != two.json()["id"]
    assert "idempotency-replayed" not in two.headers


@played
async def test_duplicates_that_come_at_once_collapse(api: Api) -> None:
    answers = await asyncio.gather(*(api.post("acme", key="k") for _ in range(20)))
    assert {one.status_code for one in answers} == {201}
    assert len({one.json()["id"] for one in answers}) == 1
    assert sum("idempotency-replayed" not in one.headers for one in answers) == 1
    assert len(api.cluster.pods) == 1


@played
async def test_duplicates_that_meet_at_the_cluster_collapse(api: Api) -> None:
    """As through two copies of the program: the store of this one does not know the pod yet."""
    made = await api.post("acme", key="k")
    (pod,) = api.cluster.pods
    fresh = FakeCluster()
    fresh.put("tenancies", tenancy("acme"))

    async with served(fresh, api.issuer, {}) as other:
        other.cluster._watchers["pods"].clear()
        other.cluster.put("pods", pod)
        again = await other.post("acme", key="k")
        assert (again.status_code, again.headers.get("idempotency-replayed")) == (201, "true")
        assert kind(await other.post("acme", key="k", gpus=2)) == "422 idempotency-key-reused"
        assert len(other.cluster.pods) == 1
    assert made.status_code == 201


@pytest.mark.parametrize("key", [None, "k"])
@played
async def test_a_creation_whose_answer_was_lost_makes_one_container(
    api: Api, key: str | None
) -> None:
    api.cluster.lose_answers = 1
    answer = await api.post("acme", key=key)
    assert answer.status_code == 201
    assert len(api.cluster.pods) == 1


@played
async def test_over_quota_says_what_is_used_and_allowed(api: Api) -> None:
    assert (await api.post("acme", gpus=2)).status_code == 201
    answer = await api.post("acme", gpus=4)
    assert kind(answer) == "409 quota-exceeded"
    said = answer.json()
    assert said["used"] == {"requests.nvidia.com/pgpu": "2"}
    assert said["allowed"] == {"requests.nvidia.com/pgpu": "4"}
    assert said["requested"] == {"requests.nvidia.com/pgpu": "4"}
    assert len(api.cluster.pods) == 1


def test_at_once_no_more_containers_are_made_than_a_tenant_may_have() -> None:
    async def act(api: Api) -> None:
        answers = await asyncio.gather(*(api.post("globex") for _ in range(30)))
        counts = [one.status_code for one in answers]
        assert counts.count(201) == len(api.cluster.pods) == 3
        assert {kind(one) for one in answers if one.status_code != 201} == {
            "409 too-many-containers"
        }
        api.cluster.remove("pods", api.cluster.pods[0]["metadata"]["name"], "tenant-globex")
        await api.settle()
        assert (await api.post("globex")).status_code == 201

    play(act, maxContainers=3)


def test_a_size_that_the_tenancy_does_not_allow_is_refused() -> None:
    cluster = FakeCluster()
    cluster.put("tenancies", tenancy("acme", gpus=8, sizes=[1, 2]))

    async def act(api: Api) -> None:
        answer = await api.post("acme", gpus=4)
        assert kind(answer) == "422 size-not-allowed"
        assert answer.json()["allowed"] == [1, 2]
        assert api.cluster.pods == []

    play(act, cluster=cluster)


@pytest.mark.parametrize("method", ["get", "post"])
@played
async def test_a_token_of_a_tenant_without_tenancy_opens_nothing(api: Api, method: str) -> None:
    answer = await (api.post("nobody") if method == "post" else api.get("nobody", "/v1/containers"))
    assert kind(answer) == "403 no-tenancy"
    assert api.cluster.pods == []


def not_ready() -> dict[str, Any]:
    return tenancy("acme", ready=False)


def changing() -> dict[str, Any]:
    """Ready, but of what it was before its last change."""
    changed = tenancy("acme")
    changed["metadata"]["generation"] = 2
    return changed


def unseen() -> dict[str, Any]:
    return {**tenancy("acme"), "status": {}}


@pytest.mark.parametrize("make", [not_ready, changing, unseen])
def test_nothing_starts_before_the_isolation_is_enforced(make: Any) -> None:
    cluster = FakeCluster()
    cluster.put("tenancies", make())

    async def act(api: Api) -> None:
        answer = await api.post("acme")
        assert kind(answer) == "503 tenancy-not-ready"
        assert answer.headers["retry-after"]
        assert api.cluster.pods == []
        assert (await api.get("acme", "/v1/tenancy")).json()["ready"] is False

    play(act, cluster=cluster)


def test_nothing_starts_in_a_tenancy_that_ends() -> None:
    cluster = FakeCluster()
    ending = tenancy("acme")
    ending["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    cluster.put("tenancies", ending)

    async def act(api: Api) -> None:
        assert kind(await api.post("acme")) == "409 tenancy-ending"

    play(act, cluster=cluster)


@played
async def test_deleting_may_be_repeated(api: Api) -> None:
    made = (await api.post("acme")).json()["id"]
    first, second = await api.delete("acme", made), await api.delete("acme", made)
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["state"] == second.json()["state"] == "deleting"
    assert (await api.get("acme", f"/v1/containers/{made}")).json()["state"] == "deleting"
    assert api.cluster.calls["delete"] == 1
    api.cluster.remove("pods", made, "tenant-acme")
    await api.settle()
    assert (await api.delete("acme", made)).status_code == 204
    assert kind(await api.get("acme", f"/v1/containers/{made}")) == "404 not-found"


@played
async def test_pages_give_every_container_once(api: Api) -> None:
    made = [(await api.post("globex")).json()["id"] for _ in range(7)]
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


@played
async def test_a_list_can_be_cut_to_one_state(api: Api) -> None:
    first, second = [(await api.post("acme")).json()["id"] for _ in range(2)]
    await api.delete("acme", first)
    await api.settle()
    (one,) = (await api.get("acme", "/v1/containers?state=queued")).json()["items"]
    assert one["id"] == second


@played
async def test_a_lease_that_is_held_for_a_container_makes_it_reserving(api: Api) -> None:
    made = (await api.post("acme")).json()["id"]
    uid = api.cluster.pods[0]["metadata"]["uid"]
    api.cluster.put("gpuleases", lease("hgx-01", 3, "Activating", uid))
    await api.settle()
    told = (await api.get("acme", f"/v1/containers/{made}")).json()
    assert told["state"] == "reserving"
    api.cluster.put("gpuleases", lease("hgx-01", 3, "Free"))
    await api.settle()
    told = (await api.get("acme", f"/v1/containers/{made}")).json()
    assert told["state"] == "queued"


@played
async def test_machines_out_of_service_or_away_are_no_free_capacity(api: Api) -> None:
    async def told() -> tuple[dict[str, int], dict[str, int]]:
        await api.settle()
        answer = (await api.get("acme", "/v1/capacity")).json()
        return answer["gpus"], answer["sizes"][2]

    api.cluster.put("gpuleases", lease("hgx-01", 5, "Scrubbing"))
    api.cluster.put("nodes", node("hgx-01", cordoned=True))
    gpus, fours = await told()
    assert gpus == {
        "total": 16, "free": 8, "unschedulable": 7, "unschedulableBy": {"Cordoned": 7},
        "recycling": 1, "quarantined": 0,
    }  # fmt: skip
    assert fours == {"gpus": 4, "total": 4, "free": 2, "unschedulable": 1, "quarantined": 0}
    api.cluster.put("nodes", node("hgx-02", ready="Unknown"))
    gpus, fours = await told()
    assert (gpus["free"], gpus["unschedulable"]) == (0, 15)
    assert gpus["unschedulableBy"] == {"Cordoned": 7, "NotReady": 8}
    assert (fours["free"], fours["unschedulable"]) == (0, 3)
    api.cluster.remove("nodes", "hgx-02")
    api.cluster.put("nodes", node("hgx-01"))
    gpus, fours = await told()
    assert (gpus["free"], gpus["unschedulable"]) == (7, 8)
    assert gpus["unschedulableBy"] == {"Gone": 8}
    assert (fours["free"], fours["unschedulable"]) == (1, 2)
    api.cluster.put("nodes", node("hgx-02"))
    gpus, fours = await told()
    assert (gpus["free"], gpus["unschedulable"]) == (15, 0)
    assert (fours["free"], fours["unschedulable"]) == (3, 0)


@played
async def test_capacity_counts_partitions_and_tells_of_nobody_else(api: Api) -> None:
    await api.post("globex", gpus=2)
    for module, phase in ((1, "Quarantined"), (2, "Leased"), (4, "Scrubbing")):
        api.cluster.put("gpuleases", lease("hgx-01", module, phase, "someone"))
    await api.settle()
    answer = await api.get("acme", "/v1/capacity")
    told = answer.json()
    assert told["gpus"] == {
        "total": 16, "free": 13, "unschedulable": 0, "unschedulableBy": {},
        "recycling": 1, "quarantined": 1,
    }  # fmt: skip
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
async def test_the_tenancy_says_what_is_used_of_the_quota(api: Api) -> None:
    quota = {"hard": {"requests.nvidia.com/pgpu": "4"}, "used": {"requests.nvidia.com/pgpu": "2"}}
    api.cluster.put(
        "resourcequotas",
        {"metadata": {"name": "tenant", "namespace": "tenant-acme"}, "status": quota},
    )
    await api.settle()
    told = (await api.get("acme", "/v1/tenancy")).json()
    assert told["gpus"] == {"quota": 4, "used": 2}
    assert told["quota"] == quota["hard"]
    assert told["gpuSizes"] == [1, 2, 4, 8]


@played
async def test_events_are_told_without_machines(api: Api) -> None:
    made = (await api.post("acme")).json()["id"]
    uid = api.cluster.pods[0]["metadata"]["uid"]
    for number, (reason, message) in enumerate(
        [
            ("Scheduled", f"assigned tenant-acme/{made} to hgx-01"),
            ("FailedScheduling", "0/2 nodes are available"),
            ("Pulled", "pulled the image on hgx-01"),
            ("FailedCreatePodSandBox", "vfio 0000:0f:00.0 on hgx-01"),
        ]
    ):
        api.cluster.put(
            "events",
            {
                "metadata": {"name": f"e{number}", "namespace": "tenant-acme"},
                "involvedObject": {"uid": uid},
                "reason": reason,
                "message": message,
                "lastTimestamp": f"2026-11-21T12:00:0{9 - number}Z",
            },
        )
    answer = await api.get("acme", f"/v1/containers/{made}/events")
    told = [(one["reason"], one["message"]) for one in answer.json()["items"]]
    assert told == [
        ("FailedCreatePodSandBox", None),
        ("Pulled", "pulled the image on a host"),
        ("Scheduled", None),
    ]


@played
async def test_a_cluster_that_is_away_is_a_problem_that_goes_away(api: Api) -> None:
    made = (await api.post("acme")).json()["id"]
    api.cluster.down = True
    answers = [
        await api.post("acme"),
        await api.delete("acme", made),
        await api.get("acme", "/v1/containers/c-unknown"),
        await api.get("acme", f"/v1/containers/{made}/events"),
    ]
    for answer in answers:
        assert kind(answer) == "503 cluster-unavailable"
        assert answer.headers["retry-after"]
        assert "192.0.2.9" not in answer.text
    # What is known can still be read.
    assert (await api.get("acme", f"/v1/containers/{made}")).status_code == 200
    api.cluster.down = False
    assert (await api.post("acme")).status_code == 201


@played
async def test_requests_that_always_compete_with_others_are_told_to_come_again(api: Api) -> None:
    said = 'Operation cannot be fulfilled on resourcequotas "tenant"'
    api.cluster.refusal = ConflictError(said, status=409, reason="Conflict")
    answer = await api.post("acme")
    assert kind(answer) == "503 cluster-unavailable"
    assert answer.headers["retry-after"]


def test_a_cluster_that_is_silent_does_not_hold_requests_for_ever() -> None:
    async def act(api: Api) -> None:
        api.cluster.silent = True
        answers = await asyncio.gather(*(api.post("acme", key=str(n)) for n in range(100)))
        assert {kind(one) for one in answers} == {"503 cluster-unavailable"}
        api.cluster.silent = False
        assert (await api.post("acme")).status_code == 201

    play(act, options={"kube_seconds": 0.05})


REFUSALS = {
    "maximum memory usage per Container is 384Gi, but limit is 500Gi.": "422 limit-exceeded",
    'namespaces "tenant-acme" is forbidden: it is being terminated because it is being '
    "terminated": "409 tenancy-ending",
    "status unknown for quota: tenant, resources: requests.nvidia.com/pgpu": (
        "503 tenancy-not-ready"
    ),
    "ValidatingAdmissionPolicy 'pods' with binding 'pods' denied request: images must come from "
    "registry.example.com": "403 refused-by-policy",
    "violates PodSecurity": "403 refused-by-policy",
}


@pytest.mark.parametrize("said", REFUSALS)
@played
async def test_a_refusal_of_the_cluster_is_explained(api: Api, said: str) -> None:
    api.cluster.refusal = ClusterError(f"the API server: {said}", status=403, reason="Forbidden")
    answer = await api.post("acme")
    assert kind(answer) == REFUSALS[said]
    assert api.cluster.pods == []


@played
async def test_a_digest_of_the_request_is_kept_and_nothing_else_of_it(api: Api) -> None:
    await api.post("acme", env={"TOKEN": "s3cret"})
    annotations = api.cluster.pods[0]["metadata"]["annotations"]
    assert annotations.keys() == {REQUEST_ANNOTATION}
