"""Hosts that join a Usernetes cluster, through the SDK's provider process, real SSH and the real scripts.

The tests follow one another on three hosts: a control plane, a worker, and one that joins later."""

import json
from typing import Any

import pytest
import yaml

from gpuclusters.proof import checks as proof
from gpuclusters.proof import hosts as proof_hosts
from gpuclusters.proof.checks import CheckLevel
from lab.hosts import faults
from lab.hosts.usernetes.usernetes_cluster import PUBLIC_IP, Clusters
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.tables import beside
from tests.providers.conftest import StartProvider
from tests.providers.usernetes_kit import ACCOUNT, GPUS, Cluster, prepare, targets

STATE = "/home/operator/.local/share/gpu-clusters/usernetes"


@pytest.fixture(scope="module")
def cluster(hosts_pool: Any, shared_processes: StartProvider) -> Cluster:
    hosts = hosts_pool.add(3, "plain-gpu-v100")
    for host in hosts:
        prepare(host)
    key = {"GPU_CLUSTERS_SSH_KEY_FILE": str(hosts[0].client_key)}
    made = Cluster(hosts, shared_processes(key))
    for host in hosts[:2]:
        made.create(host)
    return made


def untouched(host: SimulatedHost) -> bool:
    """What has its end there is the lock of the step before."""
    return [line for line in host.commands() if "flock -w" not in line] == []


def test_hosts_are_nodes_of_one_cluster_and_a_second_run_has_nothing_to_do(
    cluster: Cluster,
) -> None:
    first, worker, _ = cluster.hosts
    for host in (first, worker):
        node = cluster.kept[host.name]
        assert node.id == f"u7s/{host.name}"
        assert (node.outputs["joined"], node.outputs["drift"]) == (True, [])
        assert len(node.outputs["gpu_uuids"]) == 4
        assert node.outputs["certificate_expires"].endswith("Z")
        assert cluster.runs(host).default_runtime == "nvidia"
    assert targets(first)[:3] == ["up", "kubeadm-init", "install-cni"]
    assert targets(worker) == ["up", "kubeadm-join"]
    assert [n["metadata"]["labels"]["usernetes/host-ip"] for n in cluster.nodes().values()] == [
        cluster.kept[host.name].outputs["address"] for host in (first, worker)
    ]
    kubeconfig = yaml.safe_load(cluster.kept[first.name].outputs["kubeconfig"])
    assert kubeconfig["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:16443"
    assert kubeconfig["current-context"] == "u7s"
    assert cluster.kept[worker.name].outputs["kubeconfig"] == ""
    node = cluster.node(worker)
    assert not node.differs()
    worker.forget()
    assert node.update()["drift"] == []
    assert targets(worker) == []


def climb(host: SimulatedHost, highest: CheckLevel = CheckLevel.NODE_CDI) -> list[proof.Check]:
    """The rungs 1 to 4 of the proof."""
    said = proof_hosts.ask(host.ssh, ACCOUNT, highest)
    return proof_hosts.judge(host.name, GPUS, said, highest)


def test_a_node_holds_the_rungs_of_its_host_and_a_fault_fails_its_own(cluster: Cluster) -> None:
    host = cluster.first
    checks = climb(host)
    assert proof.proven(checks), proof.faults(checks)
    assert [check.level for check in checks] == ["R1", "R2", "R3", "R4"]
    assert checks[-1].figures == {"names": GPUS + 1}
    assert [check.level for check in climb(host, CheckLevel.DOCKER)] == ["R1", "R2"]
    failing: list[tuple[Any, str, str]] = [
        (faults.EngineIsRootful(), "R2", "runs as root"),
        (faults.CdiInvisible(), "R2", "neither the runtime nvidia nor a CDI device"),
        (faults.NvmlLost(), "R3", "daemon-reload"),
    ]
    for fault, rung, said in failing:
        host.inject(fault)
        (*_, last) = climb(host)
        assert (last.level, last.outcome) == (rung, proof.Outcome.FAILED)
        assert said in last.said
        host.clear_faults()


def test_a_host_that_starts_again_keeps_its_gpus_and_its_place(cluster: Cluster) -> None:
    worker = cluster.hosts[1]
    node = cluster.node(worker)
    worker.reboot()
    assert cluster.runs(worker).running
    assert sorted(cluster.runs(worker).gpus) == node.outputs["gpu_uuids"]
    assert node.drift() == ""
    # Whoever stops the container, the next look finds it, and the next run starts it.
    docker = "DOCKER_HOST=unix:///run/user/1000/docker.sock docker"
    assert worker.run(f"{docker} rm --force usernetes-node").returncode == 0
    assert node.drifted().outputs["drift"][0]["problem"] == "the node container is absent"
    (*_, last) = climb(worker)
    assert (last.level, last.outcome) == ("R4", proof.Outcome.FAILED)
    assert "the node does not run: run `up` again" in last.said
    worker.forget()
    assert node.update()["drift"] == []
    assert targets(worker) == ["up"]


def test_what_the_cluster_lost_of_a_node_is_drift_and_is_put_back(cluster: Cluster) -> None:
    worker = cluster.hosts[1]
    node = cluster.node(worker)
    with Clusters(worker.folder).change() as known:
        for one in known["clusters"].values():
            live = one["nodes"].get(worker.name)
            if live is not None:
                live["metadata"]["annotations"][PUBLIC_IP] = "10.0.0.1"
                live["spec"]["unschedulable"] = True
                live["metadata"]["annotations"]["gpu-clusters.dev/drained-for"] = "removal"
    said = node.drift()
    assert "flannel does not know" in said
    assert "the node is closed for removal" in said
    cluster.first.inject(faults.SyncFails())
    lost = "pods of other nodes do not reach its pods"
    node.refused("update", lost, join_timeout_seconds=0.5)
    cluster.first.clear_faults()
    assert node.update()["drift"] == []
    assert cluster.nodes()[worker.name]["spec"]["unschedulable"] is False


def test_another_image_is_put_around_the_same_volumes_one_node_at_a_time(cluster: Cluster) -> None:
    worker = cluster.hosts[1]
    node = cluster.node(worker)
    # Somebody edits upstream's files: they are brought anew with it.
    file = worker.path(f"{STATE}/source/docker-compose.yaml")
    file.write_text("services: {}\n")
    assert "the files of Usernetes were changed" in node.drift()
    worker.forget()
    cluster.first.forget()
    assert node.update(container_toolkit="1.20.1")["drift"] == []
    assert targets(worker) == ["down", "up"]
    acts = [e["action"] for e in cluster.first.journal("usernetes") if e.get("node") == worker.name]
    assert acts == ["annotate", "cordon", "drain", "uncordon", "annotate"]
    assert "build: ." in file.read_text()


def test_a_host_joins_at_last_whatever_kept_it_out_and_leaves_no_token(cluster: Cluster) -> None:
    first, worker, host = cluster.hosts
    worker.forget()
    node = cluster.node(host)
    node.refused("create", f"has a node {first.name} already", node_name=first.name)
    host.inject(faults.NodeJoinFails(why="port-closed"))
    node.refused("create", "does not reach the control plane's API", "open 6443/tcp")
    assert not host.path(STATE).exists(), "it is found before all"
    host.clear_faults()
    for row in beside(__file__, "usernetes_joins.yaml"):
        changes = dict(row.get("changes", {}))
        if "cut" in row:
            host.inject(faults.CommandFails(command=row["cut"], exit=255, times=1))
        elif "fault" in row:
            host.inject(faults.parse(row["fault"], row["values"]))
        if "source" in changes:
            changes["source"] = node.wanted["source"] | changes["source"]
        node.refused("create", *row.get("said", ()), **changes)
        host.clear_faults()
    host.forget()
    host.inject(faults.CidrAssignmentFails(seconds=0.5), faults.FlannelStartsEarly())
    made = node.create()
    assert (made["joined"], made["drift"]) == (True, [])
    assert "up" not in targets(host), "it goes on where it stopped"
    host.clear_faults()
    assert untouched(worker)
    # Every token was used once and is gone: from the cluster, from the hosts, from what was logged.
    known = Clusters(host.folder).cluster_of(host.name)
    assert known is not None
    assert known["tokens"] == {}
    assert not host.path(f"{STATE}/source/join-command").exists()
    assert "--token" not in json.dumps([one.journal() for one in cluster.hosts])


def test_a_node_of_somebody_else_stays_and_ones_own_goes_without_the_others(
    cluster: Cluster,
) -> None:
    _, worker, host = cluster.hosts
    node = cluster.node(host)
    node.refused("create", f"the node on it belongs to u7s/{host.name}", cluster="another")
    worker.forget()
    node.delete()
    node.delete()  # gone already is done
    assert untouched(worker)
    assert host.name not in cluster.nodes()
    assert node.look().id == ""
    assert not host.path(STATE).exists()
    host.sudo("loginctl disable-linger operator; loginctl terminate-user operator")
    node.refused("create", "the rootless Docker of operator does not answer")


def test_workers_follow_a_control_plane_that_was_made_anew_and_all_of_it_goes(
    cluster: Cluster,
) -> None:
    first, worker, _ = cluster.hosts
    cluster.kept[first.name].delete()
    assert cluster.kept[first.name].look().id == ""
    cluster.create(first)
    node = cluster.node(worker)
    difference = node.diff()
    assert (difference.changes, difference.replaces) == (True, [])
    worker.forget()
    made = node.update()
    assert targets(worker) == ["down-v", "up", "kubeadm-join"]
    assert made["member_of"] == cluster.kept[first.name].outputs["member_of"]
    assert set(cluster.nodes()) == {first.name, worker.name}
    for host in (worker, first):
        cluster.node(host).delete()
        assert cluster.runs(host).name == ""
