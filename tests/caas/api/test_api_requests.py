"""Requests that are not as they should be: each has one precise answer and no effect."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from caas import logs, metrics
from tests.caas.api.apikit import CASES, Api, FakeCluster, kind, played, playing


async def sent(api: Api, content: Any, **headers: str) -> Any:
    said = {"Content-Type": "application/json", **headers}
    encoded: Any = {name: value.encode() for name, value in said.items()}
    return await api.call("acme", "POST", "/v1/containers", content=content, headers=encoded)


@pytest.mark.parametrize(
    ("headers", "body", "answer"),
    [
        *((headers, body.encode(), answer) for headers, body, answer in CASES["posts"]),
        ({}, b"\xff\xfe", "400 malformed-request"),
        ({}, b"[" * 30_000, "400 malformed-request"),
        ({}, b" " * 70_000, "413 body-too-large"),
    ],
    ids=lambda said: str(said)[:40],
)
@played
async def test_a_post_that_cannot_be_is_refused(
    api: Api, headers: dict[str, str], body: bytes, answer: str
) -> None:
    assert kind(await sent(api, body, **headers)) == answer
    assert api.cluster.pods == []


@played
async def test_every_fault_is_named_with_its_place(api: Api) -> None:
    body = {"image": "cuda", "gpus": 3, "env": {"A": 1}, "nodeName": "hgx-01"}
    answer = await sent(api, json.dumps(body).encode())
    told = {one["field"]: one["message"] for one in answer.json()["errors"]}
    assert told.keys() == {"body.image", "body.gpus", "body.env.A", "body.nodeName"}
    assert "with a tag or a digest" in told["body.image"]
    assert told["body.nodeName"] == "there is no such field"


@played
async def test_a_large_body_is_refused_that_does_not_say_so(api: Api) -> None:
    async def pieces() -> Any:
        for _ in range(100):
            yield b" " * 1000

    assert kind(await sent(api, pieces())) == "413 body-too-large"


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [*CASES["requests"], ("GET", f"/v1/containers/{'c' * 300}", "422 invalid-request")],
)
@played
async def test_what_is_not_there_is_a_problem_too(
    api: Api, method: str, path: str, answer: str
) -> None:
    found = await api.call("acme", method, path, json={} if method == "PATCH" else None)
    assert kind(found) == answer
    assert api.cluster.calls["create"] == 0


@played
async def test_a_request_id_is_taken_over_if_it_is_one(api: Api) -> None:
    for said, taken in (("abc-1", True), ("a b", False), ("x" * 65, False), ('{"a":1}', False)):
        answer = await api.get("acme", "/v1/tenancy", headers={"X-Request-Id": said})
        given = answer.headers["x-request-id"]
        assert given
        assert (given == said) is taken


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What the program logs, as it would stand in its output."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


@played
async def test_neither_tokens_nor_what_containers_get_are_logged(
    api: Api, logged: io.StringIO
) -> None:
    await api.post("acme", env={"PASSWORD": "hunter2hunter2"}, args=["--key", "hunter3hunter3"])
    token = api.issuer.token("acme")
    for scheme in ("Bearer", "Basic"):
        await api.client.get("/v1/tenancy", headers={"Authorization": f"{scheme} {token}"})
    await sent(api, b'{"image": "hunter4hunter4", "gpus": 1, "env": {"A": ["hunter5hunter5"]}}')
    await api.post("acme", key="hunter6hunter6")
    api.cluster.down = True
    await api.post("acme", env={"A": "hunter7hunter7"})

    text = logged.getvalue()
    lines = [json.loads(line) for line in text.splitlines()]
    first, *others = (line["fields"] for line in lines if line["message"] == "request")
    assert len(others) == 5
    wanted = {"tenant": "acme", "method": "POST", "path": "/v1/containers", "status": "201"}
    assert first.items() >= wanted.items()
    assert "hunter" not in text
    assert "eyJ" not in text


@played
async def test_a_fault_of_ours_is_a_problem_without_a_traceback(
    api: Api, logged: io.StringIO
) -> None:
    api.cluster.refusal = RuntimeError("hunter2 in tenant-acme")
    answer = await api.post("acme")
    assert kind(answer) == "500 internal-error"
    assert "hunter2" not in answer.text
    assert "Traceback" not in answer.text
    # Nothing was counted that is not there.
    assert (await api.get("acme", "/v1/tenancy")).json()["containers"] == 0
    failures = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert any("RuntimeError" in line.get("exception", "") for line in failures)


def count(route: str) -> float:
    labels = {"method": "GET", "route": route, "status": "404"}
    return metrics.API.get_sample_value("gpu_clusters_api_requests_total", labels) or 0.0


@played
async def test_requests_are_counted_by_route_and_not_by_path(api: Api) -> None:
    routes = ("/v1/containers/{container}", "unmatched")
    before = [count(route) for route in routes]
    for number in range(3):
        await api.get("acme", f"/v1/containers/c-{number}")
        await api.client.get(f"/nothing-{number}")
    assert [count(route) - known for route, known in zip(routes, before, strict=True)] == [3, 3]
    said = metrics.exposition(metrics.API)[0].decode()
    assert "gpu_clusters_api_request_seconds_bucket" in said
    assert "c-1" not in said


@pytest.mark.parametrize("down", [False, True])
@played
async def test_it_is_ready_when_the_cluster_answers(api: Api, *, down: bool) -> None:
    api.cluster.down = down
    assert await api.condition.waits_for() == ("the cluster does not answer" if down else None)
    assert api.condition.broken() is None


class Deaf(FakeCluster):
    async def watch(self, *args: Any, **options: Any) -> Any:
        raise RuntimeError("deaf")
        yield


@playing(cluster=Deaf)
async def test_a_watch_that_ended_makes_the_program_unwell(api: Api) -> None:
    assert api.condition.broken() == "a watch of the cluster has ended"
    assert kind(await api.post("acme")) == "503 cluster-unavailable"
