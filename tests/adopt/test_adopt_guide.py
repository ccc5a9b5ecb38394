"""docs/adopt.md: its commands on simulated hosts, with the embedded engine; its configuration."""

from __future__ import annotations

import json
import re
from importlib import import_module
from typing import Any

import pytest
import yaml

from gpuclusters.providers.reconciling import ReconcilingProvider
from gpuclusters.providers.server import PROVIDERS
from gpuclusters.rke2 import releases
from lab.hosts.rke2 import rke2_release
from tests.adopt.guide import DOCS, commands, follow
from tests.engine.shellkit import Shell
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.providers.conftest import StartProvider
from tests.providers.rke2kit import SERVER_TOKEN, V35, Cluster

PAGE = DOCS / "adopt.md"
CDI = "/etc/cdi/nvidia.com-pgpu.json"
HEAD = """\
import json
from pathlib import Path

import pulumi

known = json.loads(Path("machines.json").read_text())
"""
CLUSTER = (
    HEAD
    + """
from components.host_connection import HostConnection
from components.rke2.cluster import Rke2Cluster, Rke2Host
from gpuclusters.rke2.host_config import Settings

server, agent = (Rke2Host(connection=HostConnection(**one)) for one in known["machines"])
secrets = pulumi.Config()
Rke2Cluster("test", version=known["version"],
    artifacts=known["artifacts"],
    settings=Settings(registration_address=known["address"]),
    servers=[server],
    agents=[agent],
    server_token=secrets.require_secret("server-token"),
    agent_token=secrets.require_secret("agent-token"),
    join_timeout_seconds=240,
    adopt=[one["host"] for one in known["machines"]])
"""
)
BOARD = (
    HEAD
    + """
from gpuclusters.cdi.resource import CdiSpec
from gpuclusters.fabric.resource import FabricPartitions

(machine,) = known["machines"]
CdiSpec("hgx-01-cdi", connection=machine, path=known["path"], kind="nvidia.com/pgpu",
        devices=known["devices"], adopt=True)
FabricPartitions("hgx-01-fabric", connection=machine, board="board-0", baseboard="hgx-h100",
                 layout=[4, 2, 1, 1], gpus=known["gpus"], adopt=True)
"""
)


def declare(
    project: Shell,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    *hosts: SimulatedHost,
    **known: Any,
) -> None:
    monkeypatch.setenv("GPU_CLUSTERS_SSH_KEY_FILE", str(hosts[0].client_key))
    (project.folder / "__main__.py").write_text(program)
    machines = [host.connection for host in hosts]
    (project.folder / "machines.json").write_text(json.dumps({"machines": machines, **known}))


def by_hand(host: SimulatedHost) -> None:
    """Make of a host of ours one that somebody installed with a `config.yaml` of his own."""
    merged: dict[str, Any] = {}
    for path in (releases.TOKENS, releases.CONFIG):
        merged |= yaml.safe_load(host.path(path).read_text())
        host.path(path).unlink()
    # What is the default anyway, nobody writes.
    for key in ("cluster-cidr", "service-cidr", "write-kubeconfig-mode"):
        merged.pop(key, None)
    host.path("/etc/rancher/rke2/config.yaml").write_text(yaml.safe_dump(merged))
    host.sudo("rm -r /var/lib/gpu-clusters/rke2")
    for path in (releases.INOTIFY, releases.NETWORK_MANAGER):
        host.path(path).unlink()


def test_an_rke2_cluster_that_was_installed_by_hand_becomes_part_of_a_stack(
    project: Shell, hosts: Hosts, start_provider: StartProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, agent = hosts(2, platform="plain-server")
    cluster = Cluster([server, agent], start_provider(server))
    for host in (server, agent):
        tokens = {"token": SERVER_TOKEN, "agent_token": SERVER_TOKEN}
        cluster.create(host, **(tokens if host is server else {"token": SERVER_TOKEN}))
        by_hand(host)
    nodes = cluster.nodes()
    known = {
        "version": V35,
        "address": cluster.address,
        "artifacts": {
            "source": "download",
            "location": "https://releases.test",
            "checksum": rke2_release.checksum(V35),
        },
    }

    # Somebody's stack says something else: all differences at once, and nothing happens.
    other = CLUSTER.replace(
        'address=known["address"]', 'address=known["address"], cluster_domain="x.y"'
    )
    declare(project, monkeypatch, other, server, agent, **known)
    project.ok("config", "set", "--secret", "server-token", "another-token-than-the-cluster-has")
    project.ok("config", "set", "--secret", "agent-token", "another-token-than-the-cluster-has")
    before = server.path("/etc/rancher/rke2").stat().st_mtime_ns
    refused = project("up", "--yes", "--skip-preview")
    told = refused.out + refused.err
    assert refused.code != 0
    assert f"adopt Rke2Node test/{server.name}: what is there differs from what is declared" in told
    assert "cluster-domain is cluster.local instead of x.y" in told
    assert "it has another token; set the secret gpu-clusters:server-token" in told
    assert SERVER_TOKEN not in told
    assert server.path("/etc/rancher/rke2").stat().st_mtime_ns == before
    assert not server.path("/var/lib/gpu-clusters/rke2").exists()

    declare(project, monkeypatch, CLUSTER, server, agent, **known)
    names = {"cp-01": server, "gpu-01": agent}
    said = follow(project, commands("adopt.md", "An RKE2 cluster"), names)
    assert f"rke2 version {V35}" in said[0]
    assert "no changes" in said[-1] or "unchanged" in said[-1]
    assert {name: node["metadata"].get("uid") for name, node in cluster.nodes().items()} == {
        name: node["metadata"].get("uid") for name, node in nodes.items()
    }
    assert (
        server.path("/var/lib/gpu-clusters/rke2/owner").read_text().strip() == f"test/{server.name}"
    )


def test_a_cdi_file_and_partitions_that_are_there_become_part_of_a_stack(
    project: Shell, hosts: Hosts, start_provider: StartProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host,) = hosts()
    gpus = {"1": "86", "2": "b8", "3": "87", "4": "bb", "5": "0f", "6": "41", "7": "10", "8": "44"}
    addresses = {module: f"0000:{bus}:00.0" for module, bus in gpus.items()}
    devices = [{"name": m, "pci_address": a} for m, a in addresses.items()]
    groups = {
        m: host.path(f"/sys/bus/pci/devices/{a}/iommu_group").name for m, a in addresses.items()
    }
    file = {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/pgpu",
        "containerEdits": {"deviceNodes": [{"path": "/dev/vfio/vfio"}]},
        "devices": [
            {"name": m, "containerEdits": {"deviceNodes": [{"path": f"/dev/vfio/{g}"}]}}
            for m, g in groups.items()
        ],
    }
    host.path(CDI).parent.mkdir(parents=True, exist_ok=True)
    host.path(CDI).write_text(json.dumps({**file, "devices": file["devices"][1:]}))
    assert host.run("fmpm -a 1 && fmpm -a 5").returncode == 0
    declare(project, monkeypatch, BOARD, host, path=CDI, devices=devices, gpus=addresses)
    refused = project("up", "--yes", "--skip-preview")
    told = refused.out + refused.err
    assert refused.code != 0
    assert f"adopt CdiSpec {host.name}:{CDI}: what is there differs" in told
    assert "it has no device 1;" in told
    assert "partitions 1, 5 are active instead of 1, 5, 12, 14" in told
    assert host.active_partitions() == [1, 5]

    assert host.run("fmpm -a 12 && fmpm -a 14").returncode == 0
    host.path(CDI).write_text(json.dumps(file))
    host.forget()
    follow(project, commands("adopt.md", "CDI files and partitions"), {"hgx-01": host})
    assert sorted(host.active_partitions()) == [1, 5, 12, 14]
    assert "gpu-clusters" in host.path(CDI).read_text()


def test_the_guide_tells_of_every_resource_that_keeps_something() -> None:
    compared = PAGE.read_text().split("## What is compared", 1)[1].split("\n## ", 1)[0]
    named = set(re.findall(r"`([A-Z][A-Za-z0-9]+)`", compared))
    providers = {one.__name__.removesuffix("Provider"): one for one in _providers()}
    able = {kind for kind, one in providers.items() if "adopt" in one.model.model_fields}
    assert set(providers) <= named, "say what becomes of a thing that is there already"
    for kind in able:
        row = next(
            line for line in compared.splitlines() if line.startswith("|") and f"`{kind}`" in line
        )
        assert "| `machines` |" in row or "| `tenants` |" in row
        assert providers[kind].differences is not ReconcilingProvider.differences


def _providers() -> list[type[ReconcilingProvider[Any]]]:
    for path in PROVIDERS.values():
        import_module(path.partition(":")[0])
    found, todo = [], [ReconcilingProvider]
    while todo:
        todo += (below := todo.pop().__subclasses__())
        # One without a model is what others have in common.
        found += [one for one in below if "model" in vars(one)]
    return [one for one in found if one.__module__.startswith("gpuclusters.")]
