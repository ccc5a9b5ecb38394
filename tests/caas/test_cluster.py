"""Objects of a real API server, and of servers that misbehave."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from caas.cluster import Cluster, ClusterError, Event
from gpuclusters.core.ports import ObjectKind
from tests.caas.loops import in_loop
from tests.fixtures.control_plane import KubeCluster

CONFIG = ObjectKind("", "v1", "configmaps", "ConfigMap", namespaced=True)
QUOTA = ObjectKind("", "v1", "resourcequotas", "ResourceQuota", namespaced=True)
PATIENCE_SECONDS = 120
"""How long what must come is waited for; a busy machine takes its time."""
UNKNOWN = ObjectKind("nowhere.example", "v1", "things", "Thing", namespaced=False)


def config(namespace: str, name: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"of": namespace}},
        "data": data,
    }


@pytest.mark.lab
@in_loop
async def test_apply_refuses_unknown_fields(kube_api: KubeCluster, namespace: str) -> None:
    async with Cluster(kube_api.kubeconfig) as cluster:
        with pytest.raises(ClusterError, match="dta"):
            await cluster.apply(CONFIG, config(namespace, "a") | {"dta": {}}, manager="two")


async def until(stream: AsyncIterator[Event], kind: str) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []
    async for event in stream:
        seen.append((event.kind, event.object["metadata"]["name"] if event.kind != "SYNC" else ""))
        if event.kind == kind:
            return seen
    raise AssertionError("a watch has no end")


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def server(handler: Handler) -> AsyncIterator[Cluster]:
    """A cluster whose API server is `handler`, over plain HTTP on a free port of loopback."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        async with cluster_at(f"http://{host}:{port}") as cluster:
            yield cluster
    finally:
        await runner.cleanup()


@asynccontextmanager
async def cluster_at(url: str) -> AsyncIterator[Cluster]:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": url}}],
        "users": [{"name": "a", "user": {"token": "a-token"}}],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        path.write_text(yaml.safe_dump(document))
        async with Cluster(path) as cluster:
            yield cluster


def said(status: int, **headers: str) -> web.Response:
    body = json.dumps({"message": "not now", "reason": "Busy", "metadata": {}})
    return web.Response(status=status, text=body, headers=headers)


@pytest.mark.parametrize(
    ("verb", "first", "calls"),
    [
        *(("apply", first, 2) for first in (429, 503, 504, None)),
        *(("create", first, 1) for first in (503, 500, 403)),
        ("create", 429, 2),
    ],
)
@in_loop
async def test_only_what_may_be_done_twice_or_was_not_begun_is_repeated(
    verb: str, first: int | None, calls: int
) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers["Authorization"])
        if len(asked) > 1:
            return web.json_response({"metadata": {"name": "a"}})
        if first is None:  # the connection breaks after the request was taken
            assert request.transport
            request.transport.close()
            return web.Response()
        return said(first, **{"Retry-After": "0"})

    async with server(answer) as cluster:
        how = {"manager": "m"} if verb == "apply" else {}
        call = getattr(cluster, verb)(CONFIG, config("n", "a"), **how)
        if calls == 2:
            assert (await call)["metadata"]["name"] == "a"
        else:
            with pytest.raises(ClusterError, match="not now") as refused:
                await call
            assert (refused.value.status, refused.value.reason) == (first, "Busy")
    assert asked == ["Bearer a-token"] * calls


@in_loop
async def test_a_log_comes_in_pieces_from_the_containers_own_address() -> None:
    more = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.path == "/api/v1/namespaces/n/pods/a/log"
        asked = {"container": "main", "tailLines": "5", "sinceSeconds": "60", "follow": "true"}
        assert dict(request.query) == asked
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        await more.wait()
        await response.write(b"two\n")
        return response

    async with server(answer) as cluster:
        options = {"container": "main", "follow": True, "tail_lines": 5, "since_seconds": 60}
        log = cluster.pod_log("n", "a", **options)
        assert await anext(log) == b"one\n"
        more.set()
        assert [piece async for piece in log] == [b"two\n"]


@in_loop
async def test_a_server_that_is_not_there_is_named(closed_port: int) -> None:
    url = f"http://127.0.0.1:{closed_port}"
    async with cluster_at(url) as cluster:
        with pytest.raises(ClusterError, match=f"{url} did not") as failed:
            await cluster.get(CONFIG, "a", "n")
        assert (failed.value.status, failed.value.reason) == (0, "Unreachable")


@in_loop
async def test_a_kubeconfig_that_is_none_is_named_without_its_content(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("current-context: nowhere\nsecret: top-secret\n")

    with pytest.raises(ClusterError, match="cannot be used") as failed:
        async with Cluster(path):
            raise AssertionError("unreachable")
    assert str(path) in str(failed.value)
    assert "top-secret" not in str(failed.value)


def item(name: str, version: int, **more: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version), "uid": name}, **more}


def listed(*items: dict[str, Any], version: int = 9) -> web.Response:
    return web.json_response({"metadata": {"resourceVersion": str(version)}, "items": items})


async def streamed(request: web.Request, kind: str, body: dict[str, Any]) -> web.StreamResponse:
    """A watch with one event."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(json.dumps({"type": kind, "object": body}).encode() + b"\n")
    return response


async def watched(answer: Handler, kind: ObjectKind, *ends: str) -> list[tuple[str, str]]:
    """What a watch says until it has said these, one after the other."""
    async with (
        server(answer) as cluster,
        asyncio.timeout(PATIENCE_SECONDS),
        aclosing(cluster.watch(kind)) as stream,
    ):
        return [seen for end in ends for seen in await until(stream, end)]


@in_loop
async def test_after_the_watch_was_broken_it_begins_anew() -> None:
    """The server forgets old versions (410) while `a` goes, `b` changes and `c` comes."""
    lists = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" not in request.query:
            lists += 1
            first, later = [item("a", 1), item("b", 2)], [item("b", 5), item("c", 6)]
            return listed(*(first if lists == 1 else later))
        if lists == 1:
            expired = {"code": 410, "message": "too old resource version", "reason": "Expired"}
            return await streamed(request, "ERROR", expired)
        # Longer than any buffer.
        response = await streamed(request, "ADDED", item("d", 10, data="x" * 3_000_000))
        await asyncio.sleep(3600)
        return response

    assert await watched(answer, CONFIG, "SYNC", "SYNC", "ADDED") == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("SYNC", ""),
        ("ADDED", "b"),
        ("ADDED", "c"),
        ("SYNC", ""),
        ("ADDED", "d"),
    ]


@in_loop
async def test_a_watch_goes_on_when_the_server_comes_back() -> None:
    watches: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return listed(version=3)
        watches.append(request.query["resourceVersion"])
        if len(watches) == 2:
            return said(503)
        response = await streamed(request, "ADDED", item("x", 3 + len(watches)))
        assert request.transport
        request.transport.abort()
        return response

    await watched(answer, CONFIG, "ADDED", "ADDED")
    assert watches == ["3", "4", "3"]


@in_loop
async def test_a_kind_that_does_not_exist_yet_has_no_objects_until_it_does() -> None:
    lists = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" in request.query:
            await asyncio.sleep(3600)
        lists += 1
        if lists < 3:
            return web.Response(status=404, text="404 page not found\n")
        return listed(item("a", 1))

    seen = await watched(answer, UNKNOWN, "SYNC", "ADDED")
    assert seen == [("SYNC", ""), ("SYNC", ""), ("ADDED", "a")]
