"""Logs over the API: as they come, bounded, and with nothing left open afterwards."""

import asyncio
from typing import Any

import pytest

from caas.api.containers import PER_TENANT
from caas.cluster import ClusterError
from tests.caas.api.apikit import Api, FakeCluster, listening, play, played
from tests.caas.api.test_api_containers import kind
from tests.caas.loops import in_loop
from tests.fixtures.waiting import comes

LONG = 3600.0
"""What nobody waits for."""


async def started(api: Api, tenant: str = "acme") -> str:
    """A container that runs."""
    made = str((await api.post(tenant)).json()["id"])
    pod = api.cluster.objects["pods"][(f"tenant-{tenant}", made)]
    pod["spec"].pop("schedulingGates")
    pod["status"] = {
        "phase": "Running",
        "containerStatuses": [{"name": "main", "state": {"running": {}}}],
    }
    api.cluster.put("pods", pod)
    for _ in range(100):
        if (await api.get(tenant, f"/v1/containers/{made}")).json()["state"] == "running":
            return made
        await asyncio.sleep(0.001)
    raise AssertionError("it never runs")


@played
async def test_a_log_is_given_as_it_was_written(api: Api) -> None:
    made = await started(api)
    api.cluster.logs = [b"one\ntw", b"o\n", "drei €\n".encode()]
    answer = await api.get("acme", f"/v1/containers/{made}/logs")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text == "one\ntwo\ndrei €\n"
    assert api.cluster.open_logs == 0


@played
async def test_an_empty_log_is_an_empty_answer(api: Api) -> None:
    answer = await api.get("acme", f"/v1/containers/{await started(api)}/logs")
    assert (answer.status_code, answer.content) == (200, b"")


def test_what_is_asked_for_reaches_the_cluster() -> None:
    asked: list[dict[str, Any]] = []

    class Recording(FakeCluster):
        def pod_log(self, namespace: str, pod: str, **options: Any) -> Any:
            asked.append({"namespace": namespace, **options})
            return super().pod_log(namespace, pod, **options)

    from tests.caas.api.apikit import tenancy

    cluster = Recording()
    cluster.put("tenancies", tenancy("acme"))

    async def act(api: Api) -> None:
        made = await started(api)
        await api.get("acme", f"/v1/containers/{made}/logs?follow=true&tail=5&since=60")
        assert asked == [
            {
                "namespace": "tenant-acme",
                "container": "main",
                "follow": True,
                "tail_lines": 5,
                "since_seconds": 60,
            }
        ]

    play(act, cluster=cluster)


@played
async def test_a_container_that_has_not_started_has_no_log(api: Api) -> None:
    made = (await api.post("acme")).json()["id"]
    answer = await api.get("acme", f"/v1/containers/{made}/logs")
    assert kind(answer) == "409 not-started"
    assert api.cluster.calls["log"] == 0


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ClusterError("hgx-01 away", reason="Unreachable"), "503 logs-unavailable"),
        (ClusterError("dial tcp 192.0.2.1", status=500), "503 logs-unavailable"),
        (ClusterError("waiting to start", status=400), "409 not-started"),
        (ClusterError("no such pod", status=404), "404 not-found"),
    ],
)
@played
async def test_a_log_that_cannot_be_read_is_a_problem(
    api: Api, error: ClusterError, answer: str
) -> None:
    made = await started(api)
    api.cluster.logs = [error]
    found = await api.get("acme", f"/v1/containers/{made}/logs")
    assert kind(found) == answer
    assert "192.0.2.1" not in found.text
    assert "hgx" not in found.text
    assert api.cluster.open_logs == 0


@played
async def test_a_log_that_breaks_off_ends_where_it_broke(api: Api) -> None:
    made = await started(api)
    api.cluster.logs = [b"one\n", ClusterError("gone")]
    answer = await api.get("acme", f"/v1/containers/{made}/logs")
    assert (answer.status_code, answer.text) == (200, "one\n")
    assert api.cluster.open_logs == 0


@in_loop
async def test_pieces_arrive_before_the_log_ends() -> None:
    async with listening() as (api, _):
        made = await started(api)
        api.cluster.logs = [b"one\n", LONG]
        path = f"/v1/containers/{made}/logs?follow=true"
        async with api.client.stream("GET", path, headers=api.bearer("acme")) as answer:
            first = await anext(answer.aiter_bytes())
            assert first == b"one\n"
            assert api.cluster.open_logs == 1, "it came when the log had ended"
        await gone(api)


async def gone(api: Api) -> None:
    await comes(lambda: not api.cluster.open_logs)


@in_loop
async def test_a_tenant_reads_a_bounded_number_of_logs() -> None:
    async with listening() as (api, _):
        made = await started(api)
        api.cluster.logs = [b"one\n", LONG]
        path = f"/v1/containers/{made}/logs?follow=true"

        async def follow(begun: asyncio.Semaphore) -> int:
            async with api.client.stream("GET", path, headers=api.bearer("acme")) as answer:
                begun.release()
                if answer.status_code == 200:
                    await asyncio.sleep(LONG)
                return answer.status_code

        begun = asyncio.Semaphore(0)
        followers = [asyncio.create_task(follow(begun)) for _ in range(PER_TENANT + 4)]
        for _ in followers:
            await begun.acquire()
        refused = [task.result() for task in followers if task.done()]
        while len(refused) < 4:
            await asyncio.sleep(0.01)
            refused = [task.result() for task in followers if task.done()]
        assert refused == [429] * 4
        assert api.cluster.open_logs == PER_TENANT
        # Another tenant is not in the way.
        other = await started(api, "globex")
        headers = api.bearer("globex")
        api.cluster.logs = [b"x"]
        answer = await api.client.get(f"/v1/containers/{other}/logs", headers=headers)
        assert answer.status_code == 200
        for task in followers:
            task.cancel()
        await asyncio.gather(*followers, return_exceptions=True)
        await gone(api)
        again = await api.get("acme", f"/v1/containers/{made}/logs")
        assert again.status_code == 200


@played
async def test_a_log_is_followed_no_longer_than_its_token_lasts(api: Api) -> None:
    made = await started(api)
    api.cluster.logs = [b"one\n", LONG, b"two\n"]
    token = api.issuer.token("acme", exp=int(api.clock()) + 900)
    answer = await api.client.get(
        f"/v1/containers/{made}/logs?follow=true", headers={"Authorization": f"Bearer {token}"}
    )
    assert answer.text == "one\n"
    assert api.cluster.open_logs == 0


@in_loop
async def test_followed_logs_end_when_the_program_stops() -> None:
    async with listening() as (api, _):
        made = await started(api)
        api.cluster.logs = [b"one\n", LONG]
        path = f"/v1/containers/{made}/logs?follow=true"
        async with api.client.stream("GET", path, headers=api.bearer("acme")) as answer:
            pieces = answer.aiter_bytes()
            assert await anext(pieces) == b"one\n"
            api.app.stop()
            assert await anext(pieces, None) is None
        await gone(api)
