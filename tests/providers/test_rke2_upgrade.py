"""Three servers and four agents go from one minor of Kubernetes to the next; the API answers all the time."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gpuclusters.driver import model as gpu_driver
from gpuclusters.driver.resource import GpuDriverProvider
from gpuclusters.rke2 import releases
from lab.hosts import faults
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.waiting import eventually
from tests.providers.conftest import StartProvider
from tests.providers.rke2kit import V35, V36, Cluster, Poller

AT_ONCE = 2


@pytest.fixture(scope="module")
def cluster(hosts_pool: Any, shared_processes: StartProvider) -> Cluster:
    """Three servers and four agents, one of these with GPUs, which the tests change one after the other."""
    machines = hosts_pool.add(6, "plain-server") + hosts_pool.add(1, "plain-gpu-v100")
    key = {"GPU_CLUSTERS_SSH_KEY_FILE": str(machines[0].client_key)}
    made = Cluster(machines, shared_processes(key), servers=3)
    assert made.in_order(made.create, AT_ONCE) == {}
    return made


def joins(host: SimulatedHost) -> list[str]:
    return [e["version"] for e in host.journal("rke2") if e.get("action") == "joined"]


def test_what_pods_and_watchers_need_is_in_force_on_every_host(cluster: Cluster) -> None:
    for host in cluster.hosts.values():
        assert host.run("sysctl -n fs.inotify.max_user_instances").stdout == "8192\n"
        unmanaged = host.path(releases.NETWORK_MANAGER).read_text()
        assert "unmanaged-devices=" in unmanaged


def test_servers_one_by_one_then_agents_in_a_window_with_the_api_up_and_after_a_kill_too(
    cluster: Cluster, start_provider: StartProvider
) -> None:
    second = cluster.servers[1]
    own = start_provider(second, own=True)
    with Poller(cluster) as poller:
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

        assert cluster.in_order(upgrade, AT_ONCE) == {}
    assert poller.asked > 100
    assert poller.refused == 0
    assert poller.most_servers_down == 1
    assert 1 <= poller.most_agents_closed <= AT_ONCE
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
    driver = cluster.provider.of(GpuDriverProvider, wanted)
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


def test_a_node_that_is_taken_out_is_drained_deleted_and_uninstalled(cluster: Cluster) -> None:
    agent = next(h for h in cluster.hosts.values() if h not in cluster.servers)
    first = cluster.servers[0]
    first.forget()
    cluster.node(agent).delete()
    done = [e["action"] for e in first.journal("rke2") if e.get("node") == agent.name]
    assert done[:4] == ["annotate", "cordon", "drain", "deleted"]
    assert agent.name not in cluster.nodes()
    assert not agent.path("/var/lib/rancher/rke2").exists()
    assert cluster.node(agent).look().id == ""


def test_a_server_does_not_go_while_another_is_down(cluster: Cluster) -> None:
    _, second, third = cluster.servers
    second.sudo("systemctl stop rke2-server")
    cluster.node(third).refused("delete", f"lose their majority: {second.name} not Ready")
    assert third.path("/var/lib/rancher/rke2").exists()
