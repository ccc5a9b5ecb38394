"""Hosts that join a Usernetes cluster, through the SDK's provider process, real SSH and the real scripts."""

import json
from typing import Any

import pytest
import yaml

from gpuclusters.usernetes.resource import UsernetesNodeProvider
from lab.hosts import faults
from lab.hosts.usernetes.usernetes_cluster import PUBLIC_IP, Clusters
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import StepFailed
from tests.providers.restarts import restart
from tests.providers.usernetes_kit import Cluster, prepare, targets

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
    cluster.made[standing.first.name] = standing.made[standing.first.name]
    return cluster


def drift(cluster: Cluster, host: SimulatedHost) -> str:
    """What a refresh finds."""
    return "; ".join(one["problem"] for one in cluster.refresh(host).outputs["drift"])


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
    # What has its end there is the lock of the step before.
    assert [line for line in one.commands() if "flock -w" not in line] == []
    assert other.name not in cluster.nodes()
    assert cluster.refresh(other).id == ""
    assert not other.path(STATE).exists()

    # A control plane that was made anew is another cluster: its workers follow.
    cluster.delete(first)
    assert cluster.refresh(first).id == ""
    cluster.create(first)
    assert cluster.differs(one) == (True, [])
    made = cluster.update(one)
    assert targets(one) == ["down-v", "up", "kubeadm-join"]
    assert made.outputs["member_of"] == cluster.made[first.name].outputs["member_of"]
    assert set(cluster.nodes()) == {first.name, one.name}
    for machine in (one, first):
        cluster.delete(machine)
        assert cluster.node(machine).name == ""


def test_a_host_that_starts_again_keeps_its_gpus_and_its_place(standing: Cluster) -> None:
    worker = standing.hosts[1]
    restart(worker)
    assert standing.node(worker).running
    assert sorted(standing.node(worker).gpus) == standing.made[worker.name].outputs["gpu_uuids"]
    assert standing.refresh(worker).outputs["drift"] == []
    # Whoever stops the container, the next look finds it, and the next run starts it.
    docker = "DOCKER_HOST=unix:///run/user/1000/docker.sock docker"
    assert worker.run(f"{docker} rm --force usernetes-node").returncode == 0
    assert drift(standing, worker) == "the node container is absent"
    assert standing.differs(worker) == (True, [])
    worker.forget()
    assert standing.update(worker).outputs["drift"] == []
    assert targets(worker) == ["up"]


def test_a_run_that_was_killed_goes_on_where_it_stopped(small: Cluster) -> None:
    worker = small.hosts[1]
    for words in (r"tar\.gz", "-- up$", "-- joined"):
        worker.inject(faults.CommandFails(command=words, exit=255, times=1))
        with pytest.raises(StepFailed):
            small.create(worker)
        worker.clear_faults()
    # Killed while it joined: what kubeadm left is reset first.
    worker.inject(faults.CommandFails(command="sh -s -- began$", exit=255, times=1))
    with pytest.raises(StepFailed):
        small.create(worker)
    worker.clear_faults()
    worker.forget()
    assert small.create(worker).outputs["drift"] == []
    assert "up" not in targets(worker)


def test_a_host_that_cannot_join_says_why_at_each_step_and_leaves_no_token(small: Cluster) -> None:
    worker = small.hosts[1]
    worker.inject(faults.NodeJoinFails(why="port-closed"))
    with pytest.raises(StepFailed, match=r"does not reach the control plane's API.*open 6443/tcp"):
        small.create(worker)
    assert not worker.path(STATE).exists()
    worker.clear_faults()
    for fault, words in (
        (faults.NodeImageFails(why="wrong-tag"), r"\(`make up`\).*the files are of two tags"),
        (faults.NodeStartFails(why="cdi-unresolvable"), "does not know the CDI device"),
        (faults.PortTaken(port=10250), "a port of the node is in use"),
        (faults.NodeGpusFail(why="nvml"), "the node container has no access to the driver"),
        (
            faults.NodeGpusFail(why="index-names"),
            "CDI specification lacks GPU-.*unresolvable CDI devices",
        ),
    ):
        worker.inject(fault)
        with pytest.raises(StepFailed, match=words):
            small.create(worker)
        worker.clear_faults()
    worker.inject(faults.NodeJoinFails(why="token-expired"))
    with pytest.raises(StepFailed, match=r"no longer accepts the join token.*join-token-hours"):
        small.create(worker)
    worker.clear_faults()
    # When many join at once this comes and goes.
    worker.inject(faults.CidrAssignmentFails(seconds=600))
    with pytest.raises(StepFailed, match=r"not done after 1 s.*cni plugin.*CIDRAssignmentFailed"):
        small.create(worker, join_timeout_seconds=1)
    worker.clear_faults()
    worker.inject(faults.CidrAssignmentFails(seconds=0.5), faults.FlannelStartsEarly())
    assert small.create(worker).outputs["joined"] is True
    # Every token was used once and is gone: from the cluster, from the hosts, from what was logged.
    cluster = Clusters(worker.folder).cluster_of(worker.name)
    assert cluster is not None
    assert cluster["tokens"] == {}
    assert not worker.path(f"{STATE}/source/join-command").exists()
    journals = json.dumps([host.journal() for host in small.hosts])
    assert "--token" not in journals


def test_what_the_cluster_lost_of_a_node_is_drift_and_is_put_back(standing: Cluster) -> None:
    worker = standing.hosts[1]
    with Clusters(worker.folder).change() as known:
        for cluster in known["clusters"].values():
            node = cluster["nodes"].get(worker.name)
            if node is not None:
                node["metadata"]["annotations"][PUBLIC_IP] = "10.0.0.1"
                node["spec"]["unschedulable"] = True
                node["metadata"]["annotations"]["gpu-clusters.dev/drained-for"] = "removal"
    said = drift(standing, worker)
    assert "flannel does not know" in said
    assert "the node is closed for removal" in said
    standing.first.inject(faults.SyncFails())
    with pytest.raises(StepFailed, match="pods of other nodes do not reach its pods"):
        standing.update(worker, join_timeout_seconds=0.5)
    standing.first.clear_faults()
    assert standing.update(worker).outputs["drift"] == []
    assert standing.nodes()[worker.name]["spec"]["unschedulable"] is False


def test_another_image_is_put_around_the_same_volumes_one_node_at_a_time(standing: Cluster) -> None:
    worker = standing.hosts[1]
    worker.forget()
    standing.first.forget()
    made = standing.update(worker, container_toolkit="1.20.1")
    assert targets(worker) == ["down", "up"]
    assert made.outputs["drift"] == []
    acts = [
        e["action"] for e in standing.first.journal("usernetes") if e.get("node") == worker.name
    ]
    assert acts == ["annotate", "cordon", "drain", "uncordon", "annotate"]
    # Somebody edits upstream's files: they are brought anew.
    file = worker.path(f"{STATE}/source/docker-compose.yaml")
    file.write_text("services: {}\n")
    assert "the files of Usernetes were changed" in drift(standing, worker)
    standing.update(worker)
    assert "build: ." in file.read_text()


def test_a_host_of_somebody_else_or_that_is_not_ready_is_left_alone(small: Cluster) -> None:
    worker = small.hosts[1]
    wrong = small.inputs(worker, node_name=small.first.name)
    with pytest.raises(StepFailed, match=f"has a node {small.first.name} already"):
        small.provider.create(UsernetesNodeProvider, wrong)
    worker.inject(faults.GpuFellOffTheBus(module=2))
    with pytest.raises(StepFailed, match="nvidia-smi shows 3 GPUs and 4 are declared"):
        small.create(worker)
    worker.clear_faults()
    worker.inject(faults.DownloadRefused(status=404))
    with pytest.raises(StepFailed, match=r"gen3-v20260902.0.tar.gz could not be downloaded"):
        small.create(worker)
    worker.clear_faults()
    source = {**small.inputs(worker)["source"], "sha256": "0" * 64}
    with pytest.raises(StepFailed, match=r"and must have 0000.*nothing was unpacked"):
        small.create(worker, source=source)
    small.create(worker)
    other = small.inputs(worker, cluster="another")
    with pytest.raises(StepFailed, match=f"the node on it belongs to u7s/{worker.name}"):
        small.provider.create(UsernetesNodeProvider, other)
    worker.sudo("loginctl disable-linger operator; loginctl terminate-user operator")
    with pytest.raises(StepFailed, match="the rootless Docker of operator does not answer"):
        small.update(worker)
