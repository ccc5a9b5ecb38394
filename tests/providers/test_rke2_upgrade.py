"""Three servers and three agents join, go to the next minor release while the API answers, and leave."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from gpuclusters.driver import model as gpu_driver
from gpuclusters.rke2 import releases
from lab.hosts import faults
from lab.hosts.rke2.rke2_cluster import Clusters
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.waiting import eventually
from tests.providers.conftest import StartProvider
from tests.providers.rke2kit import V35, V36, Cluster

AT_ONCE = 2


@pytest.fixture(scope="module")
def cluster(hosts_pool: Any, shared_processes: StartProvider) -> Cluster:
    """Three servers and three agents, one of these with GPUs, which the tests change one after the other."""
    machines = hosts_pool.add(5, "plain-server") + hosts_pool.add(1, "plain-gpu-v100")
    key = {"GPU_CLUSTERS_SSH_KEY_FILE": str(machines[0].client_key)}
    made = Cluster(machines, shared_processes(key), servers=3)
    on_each(made, made.create)
    return made


def on_each(cluster: Cluster, act: Callable[[SimulatedHost], object]) -> None:
    """Do this on the servers one by one, then on the agents in a window, as an engine is told to."""
    for server in cluster.servers:
        act(server)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(act, agents(cluster)))


def agents(cluster: Cluster) -> list[SimulatedHost]:
    return [host for host in cluster.hosts.values() if host not in cluster.servers]


@contextmanager
def asked_all_the_time(cluster: Cluster) -> Iterator[Counter[str]]:
    """Whether the API answers at the registration address, and how many servers are down at most."""
    clusters, over = Clusters(cluster.servers[0].folder), threading.Event()
    counts: Counter[str] = Counter()

    def down() -> set[str]:
        return {one.name for one in cluster.servers if not clusters.is_up(one.name)}

    def ask() -> None:
        while not over.is_set():
            # A look goes from one server to the next. Where two take turns meanwhile it finds both down,
            # or nobody who answers: what counts is what two looks find alike.
            counts["asked"] += 1
            if not (clusters.at(cluster.address) or clusters.at(cluster.address)):
                counts["refused"] += 1
            seen = down()
            while (again := down()) != seen:
                seen = again
            counts["down"] = max(counts["down"], len(seen))
            time.sleep(0.005)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield counts
    finally:
        over.set()
        thread.join()


def joins(host: SimulatedHost) -> list[str]:
    return [e["version"] for e in host.journal("rke2") if e.get("action") == "joined"]


def test_each_host_is_a_node_with_what_pods_need_and_a_second_run_has_nothing_to_do(
    cluster: Cluster,
) -> None:
    assert set(cluster.nodes()) == set(cluster.hosts)
    for host in cluster.hosts.values():
        node = cluster.node(host)
        assert node.id == f"test/{host.name}"
        assert (node.outputs["joined"], node.outputs["drift"]) == (True, [])
        assert node.outputs["certificate_expires"].endswith("Z")
        assert host.run("sysctl -n fs.inotify.max_user_instances").stdout == "8192\n"
        assert "unmanaged-devices=" in host.path(releases.NETWORK_MANAGER).read_text()
    first, agent = cluster.servers[0], agents(cluster)[0]
    kubeconfig = yaml.safe_load(cluster.node(first).outputs["kubeconfig"])
    assert kubeconfig["clusters"][0]["cluster"]["server"] == f"https://{cluster.address}:6443"
    assert kubeconfig["current-context"] == "test"
    assert cluster.node(agent).outputs["kubeconfig"] == ""
    for host in (first, agent):
        node = cluster.node(host)
        assert node.refresh().outputs["drift"] == []
        assert not node.differs()
        node.create()
        assert joins(host) == [V35]


def test_servers_one_by_one_then_agents_in_a_window_with_the_api_up_and_after_a_kill_too(
    cluster: Cluster, start_provider: StartProvider
) -> None:
    second = cluster.servers[1]
    own = start_provider(second, own=True)
    with asked_all_the_time(cluster) as counts:
        # Killed while the second server is on its way.
        second.inject(faults.JoinIsSlow(seconds=600))
        cluster.node(cluster.servers[0], version=V36).update()
        cluster.provider, shared = own, cluster.provider
        node = cluster.node(second, version=V36)
        with ThreadPoolExecutor(1) as pool:
            failing = pool.submit(node.refused, "update")
            drained = "gpu-clusters.dev/drained-for"
            eventually(lambda: cluster.nodes()[second.name]["metadata"]["annotations"].get(drained))
            eventually(lambda: "activating" in second.run("systemctl is-active rke2-server").stdout)
            own.kill()
            failing.result()
        second.clear_faults()
        cluster.provider = shared

        def upgrade(host: SimulatedHost) -> None:
            cluster.node(host, version=V36).update()

        on_each(cluster, upgrade)
    assert counts["asked"] > 100
    assert (counts["refused"], counts["down"]) == (0, 1)
    drains = [e["node"] for e in cluster.servers[0].journal("rke2") if e.get("action") == "drain"]
    assert {agent.name for agent in agents(cluster)} <= set(drains)
    # What was done before the kill was not done again.
    assert joins(cluster.servers[0]) == [V35, V36]
    for host in cluster.hosts.values():
        node = cluster.nodes()[host.name]
        assert node["spec"]["unschedulable"] is False
        assert drained not in node["metadata"]["annotations"]
        outputs = cluster.kept[host.name].outputs
        assert (outputs["installed_version"], outputs["drift"]) == (V36, [])


def test_a_newer_driver_drains_the_node_and_opens_it_again(cluster: Cluster) -> None:
    *_, host = cluster.hosts.values()
    wanted = {
        "connection": host.connection,
        "version": "580.178.04",
        "modules": "proprietary",
        "gpus": 4,
        "control": [one.connection for one in cluster.servers],
        "node_name": host.name,
    }
    driver = cluster.provider.of("GpuDriver", wanted)
    driver.create()
    first = cluster.servers[0]
    # Nouveau is back, as after somebody's repair: that takes a restart.
    host.sudo("modprobe -r nvidia; modprobe nouveau")
    assert "[driver.nouveau]" in driver.drift()
    first.forget()
    driver.update()
    actions = [e["action"] for e in first.journal("rke2") if e.get("node") == host.name]
    assert actions[:3] == ["annotate", "cordon", "drain"]
    assert "uncordon" in actions
    node = cluster.nodes()[host.name]
    assert node["spec"]["unschedulable"] is False
    assert host.path(gpu_driver.NOUVEAU_FILE).exists()


def gone(cluster: Cluster, host: SimulatedHost) -> None:
    node = cluster.node(host)
    node.delete()
    for path in ("/var/lib/rancher/rke2", "/usr/local/bin/rke2", releases.INOTIFY):
        assert not host.path(path).exists()
    node.delete()  # gone already is done
    assert node.look().id == ""


def test_a_node_that_is_taken_out_is_drained_deleted_and_uninstalled(cluster: Cluster) -> None:
    agent, first = agents(cluster)[0], cluster.servers[0]
    first.forget()
    gone(cluster, agent)
    done = [e["action"] for e in first.journal("rke2") if e.get("node") == agent.name]
    assert done[:4] == ["annotate", "cordon", "drain", "deleted"]
    assert agent.name not in cluster.nodes()


def test_a_server_does_not_go_while_another_is_down_and_in_the_end_all_of_them_go(
    cluster: Cluster,
) -> None:
    first, second, third = cluster.servers
    second.sudo("systemctl stop rke2-server")
    cluster.node(third).refused("delete", f"lose their majority: {second.name} not Ready")
    assert third.path("/var/lib/rancher/rke2").exists()
    second.sudo("systemctl start rke2-server")
    for host in (*agents(cluster)[1:], third, second, first):
        gone(cluster, host)
