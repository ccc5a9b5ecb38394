"""Tenants who have a valid token and no tenancy: refused, unless a template says what they get."""

import asyncio
from typing import Any

import pytest

from caas.cluster import ClusterError
from gpuclusters.tenancy.model import TENANCY
from tests.caas.api.apikit import GPU, Api, kind, playing, tenancy
from tests.fixtures.tenancies import TEMPLATE

on_demand = playing(on_demand={"most": 2, "prefix": "tenant-", "template": TEMPLATE})


def tenants(api: Api) -> set[str]:
    return {body["metadata"]["name"] for body in api.cluster.server.of(TENANCY)}


@on_demand
async def test_the_first_request_makes_a_tenancy_of_the_template_and_says_to_come_again(
    api: Api,
) -> None:
    answer = await api.post("initech")
    assert kind(answer) == "503 tenancy-not-ready"
    assert answer.headers["Retry-After"]
    made = api.cluster.server.there(TENANCY, "initech")
    assert made["metadata"]["labels"]["gpu-clusters.dev/on-demand"] == "true"
    own = {"tenant": "initech", "namespace": "tenant-initech"}
    assert {key: made["spec"][key] for key in own} == own
    assert made["spec"]["quota"]["hard"] == {f"requests.{GPU}": "2", "pods": "10"}
    assert made["spec"]["images"] == ["nvcr.io/nvidia"]

    said = (await api.get("initech", "/v1/tenancy")).json()
    assert (said["ready"], said["gpus"]["quota"]) == (False, 2)
    assert (await api.get("initech", "/v1/containers")).json()["items"] == []
    # The controllers do their work.
    await api.happens("tenancies", {**made, "status": tenancy("initech")["status"]})
    assert (await api.post("initech", image="nvcr.io/nvidia/cuda:12")).status_code == 201


@on_demand
async def test_there_are_no_more_than_the_template_says_and_declared_tenants_do_not_count(
    api: Api,
) -> None:
    callers = [name for name in ("a", "b", "c", "d") for _ in range(5)]
    answers = await asyncio.gather(*(api.get(name, "/v1/tenancy") for name in callers))
    assert api.cluster.calls["create"] == 2
    assert sorted(kind(answer) for answer in answers) == ["200"] * 10 + ["403 no-tenancy"] * 10
    first, second = tenants(api) - {"acme", "globex"}
    answer = await api.get("umbrella", "/v1/tenancy")
    assert kind(answer) == "403 no-tenancy"
    assert "all 2 on demand are taken" in answer.json()["detail"]
    # One that goes makes room.
    api.cluster.remove("tenancies", second)
    await api.settle()
    assert (await api.get("umbrella", "/v1/tenancy")).status_code == 200
    assert tenants(api) == {"acme", "globex", first, "umbrella"}


@pytest.mark.parametrize(
    ("status", "reason", "answer"),
    [
        # Another copy of the API made it first, of which no watch has told yet.
        (409, "AlreadyExists", "503 tenancy-not-ready"),
        (0, "Forbidden", "503 cluster-unavailable"),
        (403, "Forbidden", "403 no-tenancy"),
        (422, "Forbidden", "403 no-tenancy"),
    ],
)
@on_demand
async def test_a_cluster_that_makes_none_is_told_without_its_words(
    api: Api, status: int, reason: str, answer: str
) -> None:
    api.cluster.refusal = ClusterError("secret words", status=status, reason=reason)
    said = await api.get("initech", "/v1/tenancy")
    assert kind(said) == answer
    assert "secret" not in said.text


@pytest.mark.parametrize("tenant", ["x" * 57, "theirs"])
@on_demand
async def test_a_name_that_gives_no_free_namespace_gets_nothing(api: Api, tenant: str) -> None:
    # A declared tenant lives where `theirs` would.
    await api.happens("tenancies", tenancy("other", namespace="tenant-theirs"))
    answer = await api.get(tenant, "/v1/tenancy")
    assert kind(answer) == "403 no-tenancy"
    assert "cannot be that of a tenancy on demand" in answer.json()["detail"]
    assert tenant not in tenants(api)


@pytest.mark.parametrize(
    "tenant", ["Initech", "kube system", "../acme", "", "x" * 64, 7, ["a"], None]
)
@on_demand
async def test_what_is_no_name_or_no_valid_token_makes_nothing(api: Api, tenant: Any) -> None:
    assert kind(await api.get(tenant, "/v1/tenancy")) == "403 no-tenancy"
    bad = api.issuer.bearer("initech", iss="https://else.example")
    assert kind(await api.client.get("/v1/tenancy", headers=bad)) == "401 unauthenticated"
    assert api.cluster.calls["create"] == 0
