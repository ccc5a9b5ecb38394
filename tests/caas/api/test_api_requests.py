"""Requests that are not as they should be: each has one precise answer and no effect."""

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from caas import logs, metrics
from tests.caas.api.apikit import IMAGE, Api, FakeCluster, play, played
from tests.caas.api.test_api_containers import kind


async def sent(api: Api, content: bytes, **headers: str) -> Any:
    return await api.call(
        "acme",
        "POST",
        "/v1/containers",
        content=content,
        headers={"Content-Type": "application/json", **headers},
    )


BODIES = {
    b"": "422 invalid-request",
    b"{": "400 malformed-request",
    b"\xff\xfe": "400 malformed-request",
    b"[" * 30_000: "400 malformed-request",
    b"null": "422 invalid-request",
    b"[]": "422 invalid-request",
    b'"x"': "422 invalid-request",
    b"{}": "422 invalid-request",
    b'{"image": "x:1", "gpus": 3}': "422 invalid-request",
    b'{"image": "x:1", "gpus": NaN}': "422 invalid-request",
    b'{"image": "x:1", "gpus": 1e400}': "422 invalid-request",
    b'{"image": "x:1", "gpus": 1, "args": ["\\ud800"]}': "422 invalid-request",
    b'{"image": "x", "gpus": 1}': "422 invalid-request",
    b'{"image": "x:1", "gpus": 1, "hostNetwork": true}': "422 invalid-request",
    b" " * 70_000: "413 body-too-large",
}


@pytest.mark.parametrize("body", BODIES)
@played
async def test_a_body_that_cannot_be_is_refused(api: Api, body: bytes) -> None:
    assert kind(await sent(api, body)) == BODIES[body]
    assert api.cluster.pods == []


@played
async def test_every_fault_is_named_with_its_place(api: Api) -> None:
    body = {"image": "cuda", "gpus": 3, "env": {"A": 1}, "nodeName": "hgx-01"}
    answer = await sent(api, json.dumps(body).encode())
    assert {one["field"] for one in answer.json()["errors"]} == {
        "body.image",
        "body.gpus",
        "body.env.A",
        "body.nodeName",
    }
    told = {one["field"]: one["message"] for one in answer.json()["errors"]}
    assert "with a tag or a digest" in told["body.image"]
    assert told["body.nodeName"] == "there is no such field"


@pytest.mark.parametrize("kind_of", ["text/plain", "application/x-www-form-urlencoded", ""])
@played
async def test_a_body_that_is_no_json_is_refused_unread(api: Api, kind_of: str) -> None:
    answer = await sent(api, b"image=x", **{"Content-Type": kind_of})
    assert kind(answer) == "415 unsupported-media-type"


@played
async def test_a_large_body_is_refused_whether_it_says_so_or_not(api: Api) -> None:
    async def pieces() -> Any:
        for _ in range(100):
            yield b" " * 1000

    assert kind(await sent(api, b" " * 100_000)) == "413 body-too-large"
    answer = await api.call(
        "acme",
        "POST",
        "/v1/containers",
        content=pieces(),
        headers={"Content-Type": "application/json"},
    )
    assert kind(answer) == "413 body-too-large"


@pytest.mark.parametrize("key", ["", " ", "a b", "k" * 256, "schlüssel"])
@played
async def test_a_key_that_is_none_is_refused(api: Api, key: str) -> None:
    answer = await api.call(
        "acme",
        "POST",
        "/v1/containers",
        json={"image": IMAGE, "gpus": 1},
        headers={"Idempotency-Key": key.encode()},  # type: ignore[dict-item]
    )
    assert kind(answer) == "422 invalid-request"
    assert api.cluster.pods == []


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("GET", "/v1/nothing", "404 not-found"),
        ("GET", "/nothing", "404 not-found"),
        ("GET", "/v1/containers/", "404 not-found"),
        ("GET", "/v1/containers/..%2F..%2Fnodes", "404 not-found"),
        ("GET", "/v1/containers/%2e%2e", "404 not-found"),
        ("GET", "/v1/containers/C-1", "404 not-found"),
        ("GET", f"/v1/containers/{'c' * 64}", "404 not-found"),
        ("GET", f"/v1/containers/{'c' * 300}", "422 invalid-request"),
        ("PUT", "/v1/containers/c-1", "405 method-not-allowed"),
        ("PATCH", "/v1/containers", "405 method-not-allowed"),
        ("OPTIONS", "/v1/containers", "405 method-not-allowed"),
        ("BREW", "/v1/containers", "405 method-not-allowed"),
        ("DELETE", "/v1/tenancy", "405 method-not-allowed"),
        ("GET", "/v1/containers?limit=0", "422 invalid-request"),
        ("GET", "/v1/containers?limit=x", "422 invalid-request"),
        ("GET", "/v1/containers?state=lost", "422 invalid-request"),
        ("GET", "/v1/containers?cursor=%00", "422 invalid-request"),
        ("GET", "/v1/containers?cursor=2026-11-21~C", "422 invalid-request"),
        ("GET", "/v1/containers?tenant=globex", "422 invalid-request"),
    ],
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
    named = await api.get("acme", "/v1/tenancy", headers={"X-Request-Id": "abc-1"})
    assert named.headers["x-request-id"] == "abc-1"
    for bad in ("a b", "x" * 65, '{"a":1}'):
        answer = await api.get("acme", "/v1/tenancy", headers={"X-Request-Id": bad})
        assert answer.headers["x-request-id"] not in ("", bad)


@contextmanager
def logged() -> Iterator[io.StringIO]:
    """What the program logs, as it would stand in its output."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def test_neither_tokens_nor_what_containers_get_are_logged() -> None:
    async def act(api: Api) -> None:
        token = api.bearer("acme")["Authorization"].split()[1]
        await api.post("acme", env={"PASSWORD": "hunter2hunter2"}, args=["--key", "hunter3hunter3"])
        await api.client.get("/v1/tenancy", headers={"Authorization": f"Bearer {token}"})
        await api.client.get("/v1/tenancy", headers={"Authorization": f"Basic {token}"})
        await sent(api, b'{"image": "hunter4hunter4", "gpus": 1, "env": {"A": ["hunter5hunter5"]}}')
        await api.post("acme", key="hunter6hunter6")
        api.cluster.down = True
        await api.post("acme", env={"A": "hunter7hunter7"})

    with logged() as stream:
        play(act)
    text = stream.getvalue()
    lines = [json.loads(line) for line in text.splitlines()]
    said = [line["fields"] for line in lines if line["message"] == "request"]
    assert len(said) == 6
    assert said[0]["tenant"] == "acme"
    assert (said[0]["method"], said[0]["path"], said[0]["status"]) == (
        "POST",
        "/v1/containers",
        "201",
    )
    assert "hunter" not in text
    assert "eyJ" not in text


def test_a_fault_of_ours_is_a_problem_without_a_traceback() -> None:
    class Broken(FakeCluster):
        async def create(self, *_: Any) -> Any:
            raise RuntimeError("hunter2 in tenant-acme")

    from tests.caas.api.apikit import tenancy

    cluster = Broken()
    cluster.put("tenancies", tenancy("acme"))

    async def act(api: Api) -> None:
        answer = await api.post("acme")
        assert kind(answer) == "500 internal-error"
        assert "hunter2" not in answer.text
        assert "Traceback" not in answer.text
        # Nothing was counted that is not there.
        assert (await api.get("acme", "/v1/tenancy")).json()["containers"] == 0

    with logged() as stream:
        play(act, cluster=cluster)
    failures = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert any("RuntimeError" in line.get("exception", "") for line in failures)


def test_requests_are_counted_by_route_and_not_by_path() -> None:
    def count(route: str, status: str) -> float:
        labels = {"method": "GET", "route": route, "status": status}
        return metrics.API.get_sample_value("gpu_clusters_api_requests_total", labels) or 0.0

    async def act(api: Api) -> None:
        before = count("/v1/containers/{container}", "404"), count("unmatched", "404")
        for number in range(3):
            await api.get("acme", f"/v1/containers/c-{number}")
            await api.client.get(f"/nothing-{number}")
        after = count("/v1/containers/{container}", "404"), count("unmatched", "404")
        assert [b - a for a, b in zip(before, after, strict=True)] == [3, 3]
        said = metrics.exposition(metrics.API)[0].decode()
        assert "gpu_clusters_api_request_seconds_bucket" in said
        assert "c-1" not in said

    play(act)


def test_it_is_ready_when_the_cluster_answers() -> None:
    async def act(api: Api) -> None:
        assert await api.condition.waits_for() is None
        assert api.condition.broken() is None

    play(act)
    cluster = FakeCluster()
    cluster.down = True

    async def away(api: Api) -> None:
        assert await api.condition.waits_for() == "the cluster does not answer"
        assert api.condition.broken() is None

    play(away, cluster=cluster)


def test_a_watch_that_ended_makes_the_program_unwell() -> None:
    class Deaf(FakeCluster):
        async def watch(self, *args: Any, **options: Any) -> Any:
            raise RuntimeError("deaf")
            yield

    async def act(api: Api) -> None:
        assert api.condition.broken() == "a watch of the cluster has ended"
        assert kind(await api.post("acme")) == "503 cluster-unavailable"

    play(act, cluster=Deaf())
