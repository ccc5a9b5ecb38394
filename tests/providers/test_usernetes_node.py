"""Hosts that join a Usernetes cluster, through the SDK's provider process, real SSH and the real scripts."""

from __future__ import annotations

import json

import pytest
import yaml

from lab.hosts import usernetes_release
from tests.fixtures.hosts import Hosts
from tests.providers.conftest import StartProvider
from tests.providers.usernetes_kit import GEN2, Cluster, prepare, targets


def test_a_cluster_lives_from_its_control_plane_to_its_end(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    machines = hosts(3, platform="plain-gpu-v100")
    for machine in machines:
        prepare(machine)
    cluster = Cluster(machines, start_provider(machines[0]))
    first, one, other = machines
    for machine in (first, one):
        made = cluster.create(machine)
        assert made.id == f"u7s/{machine.name}"
        assert made.outputs["joined"] is True
        assert made.outputs["drift"] == []
        assert len(made.outputs["gpu_uuids"]) == 4
        assert made.outputs["certificate_expires"].endswith("Z")
        assert cluster.node(machine).default_runtime == "nvidia"
    assert targets(first)[:3] == ["up", "kubeadm-init", "install-cni"]
    assert targets(one) == ["up", "kubeadm-join"]
    # Its own network by number, whatever its name is.
    assert [n["metadata"]["labels"]["usernetes/host-ip"] for n in cluster.nodes().values()] == [
        cluster.made[m.name].outputs["address"] for m in (first, one)
    ]
    kubeconfig = yaml.safe_load(cluster.made[first.name].outputs["kubeconfig"])
    assert kubeconfig["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:16443"
    assert kubeconfig["current-context"] == "u7s"
    assert cluster.made[one.name].outputs["kubeconfig"] == ""

    # Again, and after a look: nothing to do.
    for machine in (first, one):
        assert cluster.refresh(machine).outputs["drift"] == []
        assert cluster.differs(machine) == (False, [])
        machine.forget()
        cluster.update(machine)
        assert targets(machine) == []

    # A third worker comes and goes without the others.
    one.forget()
    cluster.create(other)
    cluster.delete(other)
    cluster.delete(other)  # gone already is done
    assert one.journal("command") == []
    assert other.name not in cluster.nodes()
    assert cluster.refresh(other).id == ""
    assert not other.path("/home/operator/.local/share/gpu-clusters/usernetes").exists()
    assert cluster.differs(one) == (False, [])
    for machine in (one, first):
        cluster.delete(machine)
        assert cluster.node(machine).name == ""
