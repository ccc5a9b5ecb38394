"""Tenants who have a valid token and no tenancy: refused, unless a template says what they get."""

import asyncio
from typing import Any

import pytest

from caas.cluster import ClusterError
from tests.caas.api.apikit import GPU, RUNTIME, Api, FakeCluster, play, played, tenancy

TEMPLATE: dict[str, Any] = {
    "tenant": "any",
    "namespace": "any",
    "gpus": 2,
    "gpuResource": GPU,
    "sizes": [1, 2],
    "quota": {"hard": {f"requests.{GPU}": "2"}},
    "runtimeClasses": [RUNTIME],
    "images": ["registry.example.com"],
}
ON_DEMAND = {"most": 2, "prefix": "tenant-", "template": TEMPLATE}


def tenancies(cluster: FakeCluster) -> dict[str, dict[str, Any]]:
    return {name: body for (_, name), body in cluster.objects["tenancies"].items()}


def enforced(cluster: FakeCluster, tenant: str) -> None:
    """The controllers have done their work."""
    there = tenancies(cluster)[tenant]
    cluster.put("tenancies", {**there, "status": tenancy(tenant)["status"]})


@played
async def test_without_a_template_nobody_gets_anything(api: Api) -> None:
    answer = await api.get("initech", "/v1/tenancy")
    assert answer.status_code == 403
    assert answer.json()["type"].endswith("/no-tenancy")
    assert set(tenancies(api.cluster)) == {"acme", "globex"}


def test_the_first_request_makes_a_tenancy_of_the_template_and_says_to_come_again() -> None:
    async def act(api: Api) -> None:
        answer = await api.post("initech")
        assert answer.status_code == 503
        assert answer.json()["type"].endswith("/tenancy-not-ready")
        assert answer.headers["Retry-After"]
        made = tenancies(api.cluster)["initech"]
        assert made["metadata"]["labels"]["gpu-clusters.dev/on-demand"] == "true"
        own = {"tenant": "initech", "namespace": "tenant-initech"}
        assert {key: made["spec"][key] for key in own} == own
        assert made["spec"]["quota"]["hard"] == {f"requests.{GPU}": "2"}
        assert made["spec"]["images"] == ["registry.example.com"]

        said = (await api.get("initech", "/v1/tenancy")).json()
        assert (said["ready"], said["gpus"]["quota"]) == (False, 2)
        assert (await api.get("initech", "/v1/containers")).json()["items"] == []
        made["metadata"]["generation"] = 1
        enforced(api.cluster, "initech")
        await api.settle()
        assert (await api.post("initech")).status_code == 201

    play(act, on_demand=ON_DEMAND)


def test_there_are_no_more_than_the_template_says_and_declared_tenants_do_not_count() -> None:
    async def act(api: Api) -> None:
        for tenant in ("initech", "hooli"):
            assert (await api.get(tenant, "/v1/tenancy")).status_code == 200
        answer = await api.get("umbrella", "/v1/tenancy")
        assert answer.status_code == 403
        assert "all 2 on demand are taken" in answer.json()["detail"]
        assert set(tenancies(api.cluster)) == {"acme", "globex", "initech", "hooli"}
        # One that goes makes room.
        api.cluster.remove("tenancies", "hooli")
        await api.settle()
        assert (await api.get("umbrella", "/v1/tenancy")).status_code == 200

    play(act, on_demand=ON_DEMAND)


def test_first_requests_at_the_same_moment_make_one_tenancy_each_and_no_more() -> None:
    async def act(api: Api) -> None:
        callers = [name for name in ("a", "b", "c", "d") for _ in range(5)]
        answers = await asyncio.gather(*(api.get(name, "/v1/tenancy") for name in callers))
        assert api.cluster.calls["create"] == 2
        assert sorted(answer.status_code for answer in answers) == [200] * 10 + [403] * 10

    play(act, on_demand=ON_DEMAND)


def test_what_another_copy_of_the_api_made_first_is_asked_for_again() -> None:
    class Late(FakeCluster):
        """Its watch has not told of it yet."""

        async def create(self, kind: Any, body: Any) -> dict[str, Any]:
            raise ClusterError("it exists", status=409, reason="AlreadyExists")

    async def act(api: Api) -> None:
        answer = await api.get("initech", "/v1/tenancy")
        assert answer.status_code == 503
        assert answer.json()["type"].endswith("/tenancy-not-ready")

    play(act, cluster=Late(), on_demand=ON_DEMAND)


@pytest.mark.parametrize(
    ("status", "answer"), [(0, "cluster-unavailable"), (403, "no-tenancy"), (422, "no-tenancy")]
)
def test_a_cluster_that_makes_none_is_told_without_its_words(status: int, answer: str) -> None:
    class Refusing(FakeCluster):
        async def create(self, kind: Any, body: Any) -> dict[str, Any]:
            raise ClusterError("secret words", status=status, reason="Forbidden")

    async def act(api: Api) -> None:
        said = await api.get("initech", "/v1/tenancy")
        assert said.json()["type"].endswith(f"/{answer}")
        assert "secret" not in said.text

    play(act, cluster=Refusing(), on_demand=ON_DEMAND)


@pytest.mark.parametrize("tenant", ["x" * 57, "theirs"])
def test_a_name_that_gives_no_free_namespace_gets_nothing(tenant: str) -> None:
    async def act(api: Api) -> None:
        # A declared tenant lives where `theirs` would.
        api.cluster.put("tenancies", tenancy("other", namespace="tenant-theirs"))
        await api.settle()
        answer = await api.get(tenant, "/v1/tenancy")
        assert answer.status_code == 403
        assert "cannot be that of a tenancy on demand" in answer.json()["detail"]
        assert tenant not in tenancies(api.cluster)

    play(act, on_demand=ON_DEMAND)


@pytest.mark.parametrize("tenant", ["Initech", "kube system", "../acme", "", "x" * 64, 7, ["a"]])
def test_what_is_no_name_makes_nothing(tenant: Any) -> None:
    async def act(api: Api) -> None:
        assert (await api.get(tenant, "/v1/tenancy")).status_code == 403
        assert api.cluster.calls["create"] == 0

    play(act, on_demand=ON_DEMAND)


def test_a_token_that_is_not_valid_makes_nothing() -> None:
    async def act(api: Api) -> None:
        bad = {"Authorization": f"Bearer {api.issuer.token('initech', iss='https://else.example')}"}
        answer = await api.client.get("/v1/tenancy", headers=bad)
        assert answer.status_code == 401
        assert api.cluster.calls["create"] == 0

    play(act, on_demand=ON_DEMAND)
