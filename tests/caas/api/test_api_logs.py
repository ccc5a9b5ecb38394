"""Logs over the API: as they come, bounded, and with nothing left open afterwards."""

import asyncio
from typing import Any

import pytest

from caas.api.containers import PER_TENANT
from caas.cluster import ClusterError
from tests.caas.api.apikit import Api, kind, listening, played
from tests.caas.loops import in_loop
from tests.fixtures.waiting import comes

LONG = 3600.0
"""What nobody waits for."""


@pytest.mark.parametrize("pieces", [[b"one\ntw", b"o\n", "drei €\n".encode()], []])
@played
async def test_a_log_is_given_as_it_was_written(api: Api, pieces: list[Any]) -> None:
    made = await api.started()
    api.cluster.logs = pieces
    answer = await api.get("acme", f"/v1/containers/{made}/logs")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.content == b"".join(pieces)
    assert api.cluster.open_logs == 0


@played
async def test_what_is_asked_for_reaches_the_cluster(api: Api) -> None:
    made = await api.started()
    await api.get("acme", f"/v1/containers/{made}/logs?follow=true&tail=5&since=60")
    wanted = {"container": "main", "follow": True, "tail_lines": 5, "since_seconds": 60}
    assert api.cluster.logs_asked == [{"namespace": "tenant-acme", **wanted}]


@played
async def test_a_container_that_has_not_started_has_no_log(api: Api) -> None:
    made = await api.made()
    assert kind(await api.get("acme", f"/v1/containers/{made}/logs")) == "409 not-started"
    assert api.cluster.logs_asked == []


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
    made = await api.started()
    api.cluster.logs = [error]
    found = await api.get("acme", f"/v1/containers/{made}/logs")
    assert kind(found) == answer
    assert "192.0.2.1" not in found.text
    assert "hgx" not in found.text
    assert api.cluster.open_logs == 0


@played
async def test_a_log_that_breaks_off_ends_where_it_broke(api: Api) -> None:
    made = await api.started()
    api.cluster.logs = [b"one\n", ClusterError("gone")]
    answer = await api.get("acme", f"/v1/containers/{made}/logs")
    assert (answer.status_code, answer.text) == (200, "one\n")
    assert api.cluster.open_logs == 0


@in_loop
async def test_a_tenant_reads_a_bounded_number_of_logs() -> None:
    async with listening() as (api, _):
        made = await api.started()
        api.cluster.logs = [b"one\n", LONG]
        path = f"/v1/containers/{made}/logs?follow=true"

        async def follow(begun: asyncio.Semaphore) -> int:
            async with api.client.stream("GET", path, headers=api.issuer.bearer("acme")) as answer:
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
        other = await api.started("globex")
        api.cluster.logs = [b"x"]
        assert kind(await api.get("globex", f"/v1/containers/{other}/logs")) == "200"
        for task in followers:
            task.cancel()
        await asyncio.gather(*followers, return_exceptions=True)
        await comes(lambda: not api.cluster.open_logs)
        assert kind(await api.get("acme", f"/v1/containers/{made}/logs")) == "200"


@played
async def test_a_log_is_followed_no_longer_than_its_token_lasts(api: Api) -> None:
    made = await api.started()
    api.cluster.logs = [b"one\n", LONG, b"two\n"]
    answer = await api.get("acme", f"/v1/containers/{made}/logs?follow=true")
    assert answer.text == "one\n"
    assert api.cluster.open_logs == 0


@in_loop
async def test_pieces_arrive_as_they_come_until_the_program_stops() -> None:
    async with listening() as (api, _):
        made = await api.started()
        api.cluster.logs = [b"one\n", LONG]
        path = f"/v1/containers/{made}/logs?follow=true"
        async with api.client.stream("GET", path, headers=api.issuer.bearer("acme")) as answer:
            pieces = answer.aiter_bytes()
            assert await anext(pieces) == b"one\n"
            assert api.cluster.open_logs == 1, "it came when the log had ended"
            api.app.stop()
            assert await anext(pieces, None) is None
        await comes(lambda: not api.cluster.open_logs)
