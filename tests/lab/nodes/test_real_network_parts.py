"""What of the network of real nodes can be tried without any: what programs are told, and entrances."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.control_plane import ports
from lab.control_plane.layout import Layout
from lab.nodes import dns, proxy
from lab.nodes.entrances import Entrances
from lab.nodes.folder import NodesFolder, RealNodeFolder
from lab.nodes.model import NodesError

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
    proxy.declare(api)  # type: ignore[arg-type]
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


def test_an_entrance_whose_port_another_program_took_is_named(tmp_path: Path) -> None:
    folder = NodesFolder(tmp_path)
    [port] = ports.reserve(folder.entrances, ["demo/web:80"]).values()
    held = pytest.raises(NodesError, match=rf"port {port} .* leads to demo/web:80, is held by")
    with socket.create_server((ports.LOOPBACK, port)), held:
        asyncio.run(Entrances(folder, Layout.of(tmp_path), 1, list).restore())
