"""What programs rely on in an API server: the one in this process keeps to it as the real one does."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from caas.cluster import Cluster, ClusterError, ConflictError
from gpuclusters.core.ports import ObjectKind
from tests.caas.fakecluster import FakeCluster, Server
from tests.caas.loops import in_loop
from tests.caas.test_cluster import CONFIG, PATIENCE_SECONDS, QUOTA, UNKNOWN, config, until

NAMESPACE = ObjectKind("", "v1", "namespaces", "Namespace", namespaced=False)
FINALIZER = "example.com/one"


@dataclass(frozen=True)
class Api:
    """A server with an empty namespace, and clients of it."""

    namespace: str
    client: Callable[[], AbstractAsyncContextManager[Any]]


@pytest.fixture(params=["in memory", pytest.param("real", marks=pytest.mark.lab)])
def api(request: pytest.FixtureRequest) -> Api:
    if request.param == "real":
        kubeconfig = request.getfixturevalue("kube_api").kubeconfig
        return Api(request.getfixturevalue("namespace"), lambda: Cluster(kubeconfig))
    server = Server()
    server.create(NAMESPACE, {"metadata": {"name": "test"}})
    return Api("test", lambda: nullcontext(FakeCluster(server)))


@in_loop
async def test_objects_are_made_read_changed_and_deleted(api: Api) -> None:
    namespace = api.namespace
    async with api.client() as cluster:
        assert await cluster.get(CONFIG, "a", namespace) is None
        made = await cluster.create(CONFIG, config(namespace, "a", x="1"))
        with pytest.raises(ConflictError) as twice:
            await cluster.create(CONFIG, config(namespace, "a"))
        assert twice.value.reason == "AlreadyExists"
        tried = await cluster.create(CONFIG, config(namespace, "dry"), dry_run=True)
        assert tried["metadata"]["name"] == "dry"
        assert await cluster.get(CONFIG, "dry", namespace) is None
        await cluster.patch(CONFIG, "a", namespace, {"data": {"y": "2"}})
        stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}
        with pytest.raises(ConflictError):
            await cluster.patch(CONFIG, "a", namespace, stale | {"data": {"y": "3"}})
        found = await cluster.get(CONFIG, "a", namespace)
        assert found
        assert found["data"] == {"x": "1", "y": "2"}
        with pytest.raises(ConflictError):
            await cluster.delete(CONFIG, "a", namespace, uid="another")
        await cluster.delete(CONFIG, "a", namespace, uid=made["metadata"]["uid"])
        await cluster.delete(CONFIG, "a", namespace)
        assert await cluster.get(CONFIG, "a", namespace) is None


@in_loop
async def test_lists_are_whole_and_choose_by_selector(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caas.cluster.PAGE", 5)
    namespace = api.namespace
    async with api.client() as cluster:
        names = [f"c-{n:03}" for n in range(12)]
        await asyncio.gather(*(cluster.create(CONFIG, config(namespace, name)) for name in names))
        listed = await cluster.list(CONFIG, namespace, labels=f"of={namespace}")
        assert [item["metadata"]["name"] for item in listed] == names
        assert {item["kind"] for item in listed} == {"ConfigMap"}
        everywhere = await cluster.list(CONFIG, fields="metadata.name=c-007")
        assert namespace in {item["metadata"]["namespace"] for item in everywhere}
        assert await cluster.list(UNKNOWN) == []
        assert await cluster.get(UNKNOWN, "x") is None


@in_loop
async def test_apply_takes_fields_of_others(api: Api) -> None:
    namespace = api.namespace
    async with api.client() as cluster:
        await cluster.apply(CONFIG, config(namespace, "a", x="1"), manager="one")
        await cluster.apply(CONFIG, config(namespace, "a", x="2"), manager="two")
        found = await cluster.get(CONFIG, "a", namespace)
        assert found
        assert found["data"] == {"x": "2"}


@in_loop
async def test_a_status_is_replaced_only_as_it_was_read(api: Api) -> None:
    namespace = api.namespace
    async with api.client() as cluster:
        body = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "q", "namespace": namespace},
            "spec": {"hard": {"example.com/x": "1"}},
        }
        read = await cluster.create(QUOTA, body)
        await cluster.patch(QUOTA, "q", namespace, {"metadata": {"labels": {"a": "b"}}})
        with pytest.raises(ConflictError):
            await cluster.replace_status(QUOTA, read)
        with pytest.raises(ValueError, match="resourceVersion"):
            await cluster.replace_status(QUOTA, body)


@in_loop
async def test_a_watch_says_what_is_and_then_what_changes(api: Api) -> None:
    namespace = api.namespace
    async with api.client() as cluster:
        await cluster.create(CONFIG, config(namespace, "a"))
        stream = cluster.watch(CONFIG, namespace, labels=f"of={namespace}")
        async with asyncio.timeout(PATIENCE_SECONDS), aclosing(stream):
            assert await until(stream, "SYNC") == [("ADDED", "a"), ("SYNC", "")]
            await cluster.create(CONFIG, config(namespace, "b"))
            assert await until(stream, "ADDED") == [("ADDED", "b")]
            await cluster.patch(CONFIG, "b", namespace, {"data": {"x": "1"}})
            assert await until(stream, "MODIFIED") == [("MODIFIED", "b")]
            await cluster.delete(CONFIG, "a", namespace)
            assert await until(stream, "DELETED") == [("DELETED", "a")]


@in_loop
async def test_what_somebody_still_has_to_finish_is_gone_when_that_is_done(api: Api) -> None:
    async with api.client() as cluster:
        body = config(api.namespace, "a")
        body["metadata"]["finalizers"] = [FINALIZER]
        await cluster.create(CONFIG, body)
        await cluster.delete(CONFIG, "a", api.namespace)
        ending = await cluster.get(CONFIG, "a", api.namespace)
        assert ending["metadata"]["deletionTimestamp"]
        await cluster.patch(CONFIG, "a", api.namespace, {"metadata": {"finalizers": None}})
        assert await cluster.get(CONFIG, "a", api.namespace) is None


@in_loop
async def test_a_patch_of_nothing_makes_no_version_and_a_lost_object_is_said(api: Api) -> None:
    async with api.client() as cluster:
        made = await cluster.create(CONFIG, config(api.namespace, "a", x="1"))
        same = await cluster.patch(CONFIG, "a", api.namespace, {"data": {"x": "1"}})
        assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        with pytest.raises(ClusterError) as lost:
            await cluster.patch(CONFIG, "b", api.namespace, {"data": {"x": "1"}})
        assert lost.value.status == 404
        with pytest.raises(ClusterError) as homeless:
            await cluster.create(CONFIG, config("there-is-no-such-namespace", "a"))
        assert homeless.value.status == 404
