"""Hosts that join a Usernetes cluster, through the SDK's provider process, real SSH and the real scripts."""

import json
from typing import Any

import pytest
import yaml

from gpuclusters.proof import checks as proof
from gpuclusters.proof import hosts as proof_hosts
from gpuclusters.proof.checks import CheckLevel
from lab.hosts import faults
from lab.hosts.usernetes.usernetes_cluster import PUBLIC_IP, Clusters
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.providers.conftest import StartProvider
from tests.providers.usernetes_kit import ACCOUNT, GPUS, Cluster, prepare, targets

STATE = "/home/operator/.local/share/gpu-clusters/usernetes"


def prepared(pool: Any) -> SimulatedHost:
    (host,) = pool.add(1, "plain-gpu-v100")
    prepare(host)
    return host


@pytest.fixture(scope="module")
def standing(hosts_pool: Any, shared_processes: StartProvider) -> Cluster:
    """A control plane and a worker, which tests share and leave as they found them."""
    first, worker = prepared(hosts_pool), prepared(hosts_pool)
    key = {"GPU_CLUSTERS_SSH_KEY_FILE": str(first.client_key)}
    cluster = Cluster([first, worker], shared_processes(key))
    cluster.create(first)
    cluster.create(worker)
    return cluster


@pytest.fixture
def small(hosts_pool: Any, standing: Cluster) -> Cluster:
    """The shared control plane with a free host, which is the test's own."""
    cluster = Cluster([standing.first, prepared(hosts_pool)], standing.provider)
    cluster.kept[standing.first.name] = standing.kept[standing.first.name]
    return cluster


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
        assert cluster.kept[machine.name].id == f"u7s/{machine.name}"
        assert (made["joined"], made["drift"]) == (True, [])
        assert len(made["gpu_uuids"]) == 4
        assert made["certificate_expires"].endswith("Z")
        assert cluster.runs(machine).default_runtime == "nvidia"
    assert targets(first)[:3] == ["up", "kubeadm-init", "install-cni"]
    assert targets(one) == ["up", "kubeadm-join"]
    assert [n["metadata"]["labels"]["usernetes/host-ip"] for n in cluster.nodes().values()] == [
        cluster.kept[m.name].outputs["address"] for m in (first, one)
    ]
    kubeconfig = yaml.safe_load(cluster.kept[first.name].outputs["kubeconfig"])
    assert kubeconfig["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:16443"
    assert kubeconfig["current-context"] == "u7s"
    assert cluster.kept[one.name].outputs["kubeconfig"] == ""

    # Again, and after a look: nothing to do.
    for machine in (first, one):
        node = cluster.node(machine)
        assert node.refresh().outputs["drift"] == []
        assert not node.differs()
        machine.forget()
        node.update()
        assert targets(machine) == []

    # A third worker comes and goes without the others.
    one.forget()
    cluster.create(other)
    left = cluster.kept[other.name]
    left.delete()
    left.delete()  # gone already is done
    # What has its end there is the lock of the step before.
    assert [line for line in one.commands() if "flock -w" not in line] == []
    assert other.name not in cluster.nodes()
    assert left.look().id == ""
    assert not other.path(STATE).exists()

    # A control plane that was made anew is another cluster: its workers follow.
    cluster.kept[first.name].delete()
    assert cluster.kept[first.name].look().id == ""
    cluster.create(first)
    worker = cluster.node(one)
    difference = worker.diff()
    assert (difference.changes, difference.replaces) == (True, [])
    made = worker.update()
    assert targets(one) == ["down-v", "up", "kubeadm-join"]
    assert made["member_of"] == cluster.kept[first.name].outputs["member_of"]
    assert set(cluster.nodes()) == {first.name, one.name}
    for machine in (one, first):
        cluster.node(machine).delete()
        assert cluster.runs(machine).name == ""


def test_a_host_that_starts_again_keeps_its_gpus_and_its_place(standing: Cluster) -> None:
    worker = standing.hosts[1]
    node = standing.node(worker)
    worker.reboot()
    assert standing.runs(worker).running
    assert sorted(standing.runs(worker).gpus) == node.outputs["gpu_uuids"]
    assert node.drift() == ""
    # Whoever stops the container, the next look finds it, and the next run starts it.
    docker = "DOCKER_HOST=unix:///run/user/1000/docker.sock docker"
    assert worker.run(f"{docker} rm --force usernetes-node").returncode == 0
    assert node.drift().startswith("the node container is absent [")
    node.drifted()
    (*_, last) = climb(worker)
    assert (last.level, last.outcome) == ("R4", proof.Outcome.FAILED)
    assert "the node does not run: run `up` again" in last.said
    worker.forget()
    assert node.update()["drift"] == []
    assert targets(worker) == ["up"]


def climb(host: SimulatedHost, highest: CheckLevel = CheckLevel.NODE_CDI) -> list[proof.Check]:
    """The rungs 1 to 4 of the proof."""
    said = proof_hosts.ask(host.ssh, ACCOUNT, highest)
    return proof_hosts.judge(host.name, GPUS, said, highest)


def test_a_node_holds_the_rungs_of_its_host_and_a_fault_fails_its_own(standing: Cluster) -> None:
    host = standing.first
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


def test_a_run_that_was_killed_goes_on_where_it_stopped(small: Cluster) -> None:
    worker = small.hosts[1]
    # The last: killed while it joined; what kubeadm left is reset first.
    for words in (r"tar\.gz", "-- up$", "-- joined", "sh -s -- began$"):
        worker.forget()
        worker.inject(faults.CommandFails(command=words, exit=255, times=1))
        small.node(worker).refused("create")
        worker.clear_faults()
    worker.forget()
    assert small.create(worker)["drift"] == []
    assert "up" not in targets(worker)


def test_a_host_that_cannot_join_says_why_at_each_step_and_leaves_no_token(small: Cluster) -> None:
    worker = small.hosts[1]
    node = small.node(worker)
    refused: list[tuple[Any, tuple[str, ...]]] = [
        (
            faults.NodeJoinFails(why="port-closed"),
            ("does not reach the control plane's API", "open 6443/tcp"),
        ),
        (faults.NodeImageFails(why="wrong-tag"), ("(`make up`)", "the files are of two tags")),
        (faults.NodeStartFails(why="cdi-unresolvable"), ("does not know the CDI device",)),
        (faults.PortTaken(port=10250), ("a port of the node is in use",)),
        (
            faults.NodeGpusFail(why="nvml"),
            ("the node container has no access to the driver",),
        ),
        (
            faults.NodeGpusFail(why="index-names"),
            ("CDI specification lacks GPU-", "unresolvable CDI devices"),
        ),
        (
            faults.NodeJoinFails(why="token-expired"),
            ("no longer accepts the join token", "join-token-hours"),
        ),
    ]
    for number, (fault, words) in enumerate(refused):
        worker.inject(fault)
        node.refused("create", *words)
        worker.clear_faults()
        assert worker.path(STATE).exists() is (number > 0), "a closed port is found before all"
    # When many join at once this comes and goes.
    worker.inject(faults.CidrAssignmentFails(seconds=600))
    words = ("not done after 1 s", "cni plugin", "CIDRAssignmentFailed")
    node.refused("create", *words, join_timeout_seconds=1)
    worker.clear_faults()
    worker.inject(faults.CidrAssignmentFails(seconds=0.5), faults.FlannelStartsEarly())
    assert node.create()["joined"] is True
    # Every token was used once and is gone: from the cluster, from the hosts, from what was logged.
    cluster = Clusters(worker.folder).cluster_of(worker.name)
    assert cluster is not None
    assert cluster["tokens"] == {}
    assert not worker.path(f"{STATE}/source/join-command").exists()
    journals = json.dumps([host.journal() for host in small.hosts])
    assert "--token" not in journals


def test_what_the_cluster_lost_of_a_node_is_drift_and_is_put_back(standing: Cluster) -> None:
    worker = standing.hosts[1]
    node = standing.node(worker)
    with Clusters(worker.folder).change() as known:
        for cluster in known["clusters"].values():
            live = cluster["nodes"].get(worker.name)
            if live is not None:
                live["metadata"]["annotations"][PUBLIC_IP] = "10.0.0.1"
                live["spec"]["unschedulable"] = True
                live["metadata"]["annotations"]["gpu-clusters.dev/drained-for"] = "removal"
    said = node.drift()
    assert "flannel does not know" in said
    assert "the node is closed for removal" in said
    standing.first.inject(faults.SyncFails())
    lost = "pods of other nodes do not reach its pods"
    node.refused("update", lost, join_timeout_seconds=0.5)
    standing.first.clear_faults()
    assert node.update()["drift"] == []
    assert standing.nodes()[worker.name]["spec"]["unschedulable"] is False


def test_another_image_is_put_around_the_same_volumes_one_node_at_a_time(standing: Cluster) -> None:
    worker = standing.hosts[1]
    node = standing.node(worker)
    worker.forget()
    standing.first.forget()
    assert node.update(container_toolkit="1.20.1")["drift"] == []
    assert targets(worker) == ["down", "up"]
    acts = [
        e["action"] for e in standing.first.journal("usernetes") if e.get("node") == worker.name
    ]
    assert acts == ["annotate", "cordon", "drain", "uncordon", "annotate"]
    # Somebody edits upstream's files: they are brought anew.
    file = worker.path(f"{STATE}/source/docker-compose.yaml")
    file.write_text("services: {}\n")
    assert "the files of Usernetes were changed" in node.drift()
    node.update()
    assert "build: ." in file.read_text()


def test_a_host_of_somebody_else_or_that_is_not_ready_is_left_alone(small: Cluster) -> None:
    worker = small.hosts[1]
    node = small.node(worker)
    first = small.first.name
    node.refused("create", f"has a node {first} already", node_name=first)
    for fault, words in (
        (faults.GpuFellOffTheBus(module=2), "nvidia-smi shows 3 GPUs and 4 are declared"),
        (faults.DownloadRefused(status=404), "gen3-v20260902.0.tar.gz could not be downloaded"),
    ):
        worker.inject(fault)
        node.refused("create", words)
        worker.clear_faults()
    source = {**node.wanted["source"], "sha256": "0" * 64}
    node.refused("create", "and must have 0000", "nothing was unpacked", source=source)
    node.create()
    node.refused("create", f"the node on it belongs to u7s/{worker.name}", cluster="another")
    worker.sudo("loginctl disable-linger operator; loginctl terminate-user operator")
    node.refused("update", "the rootless Docker of operator does not answer")
