"""What of the network of real nodes can be tried without any: what programs are told, and entrances."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from lab.control_plane import ports
from lab.control_plane.kube import KubeApi
from lab.control_plane.layout import Layout
from lab.nodes import dns, entrances, proxy, relay
from lab.nodes.entrances import Entrances
from lab.nodes.folder import DIAL, NodesFolder, RealNodeFolder
from lab.nodes.model import NodesError

Does = Callable[[Reader, Writer], Awaitable[None]]
_SERVICE = {"namespace": "demo", "service": "web", "port": 80}
_TOOLS = {name: Path("/tools") / name for name in (*proxy.TOOLS, *dns.TOOLS)}


def test_kube_proxy_sets_nothing_that_all_of_the_machine_shares(tmp_path: Path) -> None:
    folder = RealNodeFolder(tmp_path / "node-1")
    told = proxy.command(folder, "100.64.0.10", _TOOLS)
    limits = [word.partition("=")[2] for word in told if word.startswith("--conntrack")]
    assert len(limits) == 6
    assert set(limits) <= {"0", "0s"}
    assert "--iptables-localhost-nodeports=false" in told
    # Where bridges are not filtered, answers come back through the node.
    for bridged, masquerades in ((True, "false"), (False, "true")):
        told = proxy.command(folder, "100.64.0.10", _TOOLS, bridged=bridged)
        assert f"--masquerade-all={masquerades}" in told


def test_the_service_that_nodes_serve_themselves_is_left_alone_once_it_is_there() -> None:
    """A cluster is ready a moment before it has the Service."""
    answers, applied = [404, 404, 200], []
    api = SimpleNamespace(request=lambda *_: (answers.pop(0), b""), apply=applied.append)
    proxy.declare(cast(KubeApi, api))
    assert answers == []
    [manifest] = applied
    assert manifest["metadata"]["name"] == "kubernetes"
    assert "service.kubernetes.io/service-proxy-name" in manifest["metadata"]["labels"]


def test_each_node_answers_names_for_its_own_pods() -> None:
    made = dns.endpoints("0a1b", {"two": "100.64.0.11", "one": "100.64.0.10"})
    assert [(e["nodeName"], e["addresses"]) for e in made["endpoints"]] == [
        ("one", ["100.64.0.10"]),
        ("two", ["100.64.0.11"]),
    ]
    assert made["metadata"]["name"] == "kube-dns-0a1b"
    assert {port["protocol"] for port in made["ports"]} == {"UDP", "TCP"}


def test_names_beyond_the_cluster_have_a_server_of_their_own() -> None:
    told = dns.corefile(Path("/with a blank/kubeconfig"), "100.64.0.10")
    cluster, others = told.split("\n. {")
    assert 'kubeconfig "/with a blank/kubeconfig"' in cluster
    assert "rcode NXDOMAIN" in others
    assert "kubernetes" not in others


async def _silent(reader: Reader, writer: Writer) -> None:
    await reader.read()
    writer.close()


async def _refusing(reader: Reader, writer: Writer) -> None:
    await reader.readline()
    writer.close()


async def _pod(reader: Reader, writer: Writer) -> None:
    writer.write(b"pod heard " + await reader.readline())
    await writer.drain()
    writer.close()


def _dialling(port: int) -> Does:
    async def dial(reader: Reader, writer: Writer) -> None:
        assert await reader.readline() == b"10.96.0.77 80\n"
        far = functools.partial(asyncio.open_connection, ports.LOOPBACK, port)
        await relay.to(far, b"\n")(reader, writer)

    return dial


class Lab:
    """The process that holds nodes, as far as entrances go: its folder, and nodes that answer as told."""

    def __init__(self, folder: Path) -> None:
        self.folder = NodesFolder(folder)
        self.nodes: list[str] = []

    async def node(self, name: str, does: Does) -> None:
        (self.folder.path / name).mkdir()
        await asyncio.start_unix_server(does, Path(name) / DIAL)
        self.nodes.append(name)

    def entrances(self) -> Entrances:
        return Entrances(self.folder, Layout.of(self.folder.path), 1, lambda: self.nodes)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    def get(path: str) -> dict[str, object]:
        assert path == "/api/v1/namespaces/demo/services/web"
        return {"spec": {"clusterIP": "10.96.0.77"}}

    api = contextlib.nullcontext(SimpleNamespace(get=get))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(entrances, "_DIAL_SECONDS", 0.2)
    monkeypatch.setattr(entrances, "_CONNECT_SECONDS", 120.0)
    monkeypatch.setattr(entrances, "KubeApi", lambda *_: api)
    return Lab(tmp_path)


async def through(port: int) -> bytes:
    reader, writer = await asyncio.open_connection(ports.LOOPBACK, port)
    writer.write(b"hello\n")
    with contextlib.closing(writer), contextlib.suppress(ConnectionError):
        return await reader.read()
    return b""


def test_a_node_that_is_silent_refuses_or_is_gone_is_passed_over(lab: Lab) -> None:
    async def tried() -> bytes:
        pod = await asyncio.start_server(_pod, ports.LOOPBACK, 0)
        await lab.node("a-silent", _silent)
        await lab.node("b-refusing", _refusing)
        lab.nodes.append("c-gone")
        await lab.node("d-dialling", _dialling(pod.sockets[0].getsockname()[1]))
        opened = await lab.entrances().asked(_SERVICE)
        return await through(opened["port"])

    assert asyncio.run(tried()) == b"pod heard hello\n"


def test_a_port_that_another_program_took_is_named(lab: Lab) -> None:
    [port] = ports.reserve(lab.folder.entrances, ["demo/web:80"]).values()
    held = pytest.raises(NodesError, match=rf"port {port} .* leads to demo/web:80, is held by")
    with socket.create_server((ports.LOOPBACK, port)), held:
        asyncio.run(lab.entrances().restore())
