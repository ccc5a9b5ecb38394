"""Hosts that join an RKE2 cluster, through the SDK's provider process, real SSH and the real scripts."""

from typing import Any

import pytest
import yaml

from gpuclusters.rke2 import releases
from lab.hosts import faults
from lab.hosts.rke2 import rke2_release
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import Resource
from tests.providers.rke2kit import AGENT_TOKEN, SERVER_TOKEN, V35, Cluster


@pytest.fixture(scope="module")
def small(hosts_pool: Any, shared_processes: StartProvider) -> Cluster:
    """A cluster of one server, which all tests share."""
    (server,) = hosts_pool.add(1, "plain-server")
    cluster = Cluster(
        [server], shared_processes({"GPU_CLUSTERS_SSH_KEY_FILE": str(server.client_key)})
    )
    cluster.create(server)
    return cluster


@pytest.fixture
def agent(hosts: Hosts) -> SimulatedHost:
    """A machine that may join."""
    (made,) = hosts(1, platform="plain-server")
    return made


def given_up(cluster: Cluster, host: SimulatedHost, words: str) -> str:
    """What is said of a host that does not join in time, with these words: why it does not.

    RKE2 has to say so first. On a busy machine that may take longer than a second.
    """
    text = ""
    for seconds in (1, 8, 64):
        late = cluster.node(host, join_timeout_seconds=seconds)
        text = late.refused("create", f"not done after {seconds} s")
        if words in text:
            return text
    raise AssertionError(text)


def test_a_cluster_lives_from_its_first_server_to_its_end(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    machines = hosts(3, platform="plain-server")
    cluster = Cluster(machines, start_provider(machines[0]), servers=2)
    for machine in machines:
        made = cluster.create(machine)
        assert cluster.kept[machine.name].id == f"test/{machine.name}"
        assert (made["joined"], made["drift"]) == (True, [])
        assert made["certificate_expires"].endswith("Z")
    assert set(cluster.nodes()) == {machine.name for machine in machines}

    first, agent = machines[0], machines[-1]
    kubeconfig = yaml.safe_load(cluster.kept[first.name].outputs["kubeconfig"])
    assert kubeconfig["clusters"][0]["cluster"]["server"] == f"https://{cluster.address}:6443"
    assert kubeconfig["current-context"] == "test"
    assert cluster.kept[agent.name].outputs["kubeconfig"] == ""

    # Again, and after a look: nothing to do, and nothing restarted.
    for machine in (first, agent):
        node = cluster.node(machine)
        assert node.refresh().outputs["drift"] == []
        assert not node.differs()
        node.create()
        joins = [entry for entry in machine.journal("rke2") if entry.get("action") == "joined"]
        assert len(joins) == 1

    for machine in reversed(machines):
        cluster.node(machine).delete()
        assert not machine.path("/var/lib/rancher/rke2").exists()
        assert not machine.path("/usr/local/bin/rke2").exists()
        assert not machine.path(releases.INOTIFY).exists()
        cluster.node(machine).delete()  # gone already is done
        assert cluster.node(machine).look().id == ""


def test_taints_of_a_node_that_joined_long_ago_follow_the_configuration(
    small: Cluster, agent: SimulatedHost
) -> None:
    def tainted(*taints: str) -> dict[str, Any]:
        config = small.inputs(agent)["config"]
        return {"config": {**config, "node-taint": list(taints)} if taints else config}

    def there() -> list[dict[str, str]]:
        found: list[dict[str, str]] = small.nodes()[agent.name]["spec"]["taints"]
        return found

    small.create(agent, **tainted("gpus=a100:NoSchedule"))
    assert there() == [{"key": "gpus", "value": "a100", "effect": "NoSchedule"}]
    # RKE2's own configuration counts at the registration alone.
    small.node(agent, **tainted("gpus=h100:NoSchedule")).update()
    assert there() == [{"key": "gpus", "value": "h100", "effect": "NoSchedule"}]
    small.node(agent, **tainted()).update()
    assert there() == []


def test_a_host_that_cannot_join_says_why_and_the_next_run_goes_on(
    small: Cluster, agent: SimulatedHost
) -> None:
    # A closed port is found before anything is installed.
    agent.inject(faults.JoinFails(why="port-closed"))
    closed = ("does not reach the servers ", "9345", "open ports 9345 and 6443")
    small.node(agent).refused("create", *closed)
    assert not agent.path("/usr/local/bin/rke2").exists()
    agent.clear_faults()
    said: dict[Any, str] = {
        "wrong-token": "the servers do not accept the token",
        "clock-skew": "the clocks of this host and of the servers differ",
        "duplicate-name": "another machine is or was in the cluster under this node name",
    }
    told = []
    for why, words in said.items():
        agent.inject(faults.JoinFails(why=why))
        told.append(small.node(agent).refused("create", words))
        assert "not done after" not in told[-1], "waiting longer cannot help"
        agent.clear_faults()
    agent.inject(faults.JoinFails(why="server-lost"))
    told.append(given_up(small, agent, "the host cannot reach a server"))
    for text in told:
        assert f"join test as agent {agent.name}" in text
        assert AGENT_TOKEN not in text
    agent.clear_faults()
    assert small.create(agent)["joined"] is True


def test_what_is_wrong_with_a_host_is_said_at_once_before_it_is_touched(
    small: Cluster, agent: SimulatedHost
) -> None:
    agent.inject(faults.PortTaken(port=10250), faults.DiskNearlyFull(free_gib=3))
    agent.path("/sys/fs/cgroup/cgroup.controllers").unlink()
    apparmor = agent.path("/sys/module/apparmor/parameters")
    apparmor.mkdir(parents=True)
    (apparmor / "enabled").write_text("Y\n")
    every = ("on port 10250 already", "3072 MiB are free", "cgroup v1", "apparmor_parser")
    small.node(agent).refused("create", *every)
    assert not agent.path("/var/lib/gpu-clusters/rke2").exists()


def test_a_release_whose_containerd_reads_no_drop_ins_is_named(
    small: Cluster, agent: SimulatedHost
) -> None:
    # RKE2 before v1.35.3: K3s' change 13680 is not in it, and containerd ignores the folder without a word.
    def with_drop_in(version: str) -> Resource:
        files = small.inputs(agent)["files"]
        drop_in = {**files, releases.CONTAINERD_DROP_IN: "version = 3\n"}
        return small.node(agent, version=version, files=drop_in)

    ignored = ("does not import /var/lib/rancher/rke2/", "/config-v3.toml.d")
    with_drop_in("v1.35.2+rke2r1").refused("create", *ignored)
    node = with_drop_in(V35)
    assert node.create()["drift"] == []
    config = agent.path("/var/lib/rancher/rke2/agent/etc/containerd/config.toml")
    config.write_text("version = 3\n")
    assert [one["code"] for one in node.look().outputs["drift"]] == ["rke2.drop-in-ignored"]


def test_a_host_is_left_alone_until_nothing_speaks_against_it(
    small: Cluster, agent: SimulatedHost
) -> None:
    program = agent.path("/usr/local/bin/rke2")
    program.write_text('#!/bin/sh\nexec rke2-stand-in v1.34.1+rke2r1 "$@"\n')
    program.chmod(0o755)
    node = small.node(agent)
    node.refused("create", "is there already and no stack of ours installed it")
    assert not agent.path(releases.CONFIG).exists()
    program.unlink()

    template = agent.path("/var/lib/rancher/rke2/agent/etc/containerd/config-v3.toml.tmpl")
    template.parent.mkdir(parents=True)
    # 56 bytes that an older container toolkit left (rancher/rke2, issue 10293).
    template.write_text('imports = ["/etc/containerd/conf.d/*.toml"]\nversion = 3\n')
    node.refused("create", "takes the place of all that RKE2 writes for containerd")
    template.write_text('{{ template "base" . }}\n')

    artifacts = node.wanted["artifacts"]
    wrong = ("sha256sum-amd64.txt has the sha256 ", " nothing was installed")
    node.refused("create", *wrong, artifacts={**artifacts, "checksum": "0" * 64})
    agent.inject(faults.DownloadRefused(status=403))
    node.refused("create", "could not be downloaded", "artifacts.source: folder")
    assert not program.exists()

    # They may lie on the host already: nothing is downloaded.
    folder = agent.path("/opt/rke2-artifacts")
    folder.mkdir(parents=True)
    for name, data in rke2_release.files(V35).items():
        (folder / name).write_bytes(data)
    there = {"source": "folder", "location": "/opt/rke2-artifacts"}
    artifacts |= there | {"images": list(rke2_release.IMAGES)}
    assert node.create(artifacts=artifacts)["joined"] is True
    images = agent.path("/var/lib/rancher/rke2/agent/images")
    assert sorted(file.name for file in images.iterdir()) == sorted(rke2_release.IMAGES)


def test_what_somebody_changed_is_drift_and_is_put_back(small: Cluster) -> None:
    server = small.servers[0]
    server.path(releases.CONFIG).write_text("node-name: other\n")
    node = small.node(server)
    (drift,) = node.refresh().outputs["drift"]
    assert (drift["code"], drift["path"]) == ("rke2.file-changed", [releases.CONFIG])
    assert (node.differs(), node.diff().replaces) == (True, [])
    assert node.update()["drift"] == []
    assert f"node-name: {server.name}" in server.path(releases.CONFIG).read_text()
    # Tokens are in no command line, and only root reads them.
    journal = "\n".join(str(entry) for entry in server.journal())
    assert SERVER_TOKEN not in journal
    assert AGENT_TOKEN not in journal
    assert server.path(releases.TOKENS).stat().st_mode & 0o777 == 0o600
