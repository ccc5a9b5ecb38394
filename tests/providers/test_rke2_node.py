"""Hosts that join an RKE2 cluster, through the SDK's provider process, real SSH and the real scripts."""

from typing import Any

import pytest
import yaml

from gpuclusters.rke2 import releases
from gpuclusters.rke2.resource import Rke2NodeProvider
from lab.hosts import faults
from lab.hosts.faults import DiskNearlyFull
from lab.hosts.rke2 import rke2_release
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import StepFailed
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


def starts(host: SimulatedHost) -> int:
    """How often RKE2 was joined with on the host."""
    return sum(entry.get("action") == "joined" for entry in host.journal("rke2"))


def given_up(cluster: Cluster, host: SimulatedHost, words: str) -> str:
    """What is said of a host that does not join in time, with these words: why it does not.

    RKE2 has to say so first. On a busy machine that may take longer than a second.
    """
    text = ""
    for seconds in (1, 8, 64):
        with pytest.raises(StepFailed, match=f"not done after {seconds} s") as failed:
            cluster.create(host, join_timeout_seconds=seconds)
        text = str(failed.value)
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
        assert made.id == f"test/{machine.name}"
        assert made.outputs["joined"] is True
        assert made.outputs["drift"] == []
        assert made.outputs["certificate_expires"].endswith("Z")
    assert set(cluster.nodes()) == {machine.name for machine in machines}

    first, agent = machines[0], machines[-1]
    kubeconfig = yaml.safe_load(cluster.made[first.name].outputs["kubeconfig"])
    assert kubeconfig["clusters"][0]["cluster"]["server"] == f"https://{cluster.address}:6443"
    assert kubeconfig["current-context"] == "test"
    assert cluster.made[agent.name].outputs["kubeconfig"] == ""

    # Again, and after a look: nothing to do, and nothing restarted.
    for machine in (first, agent):
        assert cluster.refresh(machine).outputs["drift"] == []
        assert cluster.differs(machine) == (False, [])
        cluster.create(machine)
        assert starts(machine) == 1

    for machine in reversed(machines):
        cluster.delete(machine)
        assert not machine.path("/var/lib/rancher/rke2").exists()
        assert not machine.path("/usr/local/bin/rke2").exists()
        assert not machine.path(releases.INOTIFY).exists()
        cluster.delete(machine)  # gone already is done
        assert cluster.refresh(machine).id == ""


def test_taints_of_a_node_that_joined_long_ago_follow_the_configuration(
    small: Cluster, agent: SimulatedHost
) -> None:
    def tainted(*taints: str) -> dict[str, Any]:
        config = small.inputs(agent)["config"]
        return {"config": {**config, "node-taint": list(taints)} if taints else config}

    small.create(agent, **tainted("gpus=a100:NoSchedule"))
    spec = small.nodes()[agent.name]["spec"]
    assert spec["taints"] == [{"key": "gpus", "value": "a100", "effect": "NoSchedule"}]
    # RKE2's own configuration counts at the registration alone.
    small.update(agent, **tainted("gpus=h100:NoSchedule"))
    spec = small.nodes()[agent.name]["spec"]
    assert spec["taints"] == [{"key": "gpus", "value": "h100", "effect": "NoSchedule"}]
    small.update(agent, **tainted())
    assert small.nodes()[agent.name]["spec"]["taints"] == []


def test_a_host_that_cannot_join_says_why_and_the_next_run_goes_on(
    small: Cluster, agent: SimulatedHost
) -> None:
    # A closed port is found before anything is installed.
    agent.inject(faults.JoinFails(why="port-closed"))
    with pytest.raises(
        StepFailed, match=r"does not reach the servers .*9345.*open ports 9345 and 6443"
    ):
        small.create(agent)
    assert not agent.path("/usr/local/bin/rke2").exists()
    agent.clear_faults()
    said: dict[Any, str] = {
        "wrong-token": "the servers do not accept the token",
        "clock-skew": "the clocks of this host and of the servers differ",
        "duplicate-name": "another machine is or was in the cluster under this node name",
    }
    for why, words in said.items():
        agent.inject(faults.JoinFails(why=why))
        with pytest.raises(StepFailed, match=words) as failed:
            small.create(agent)
        assert f"join test as agent {agent.name}" in str(failed.value)
        assert "not done after" not in str(failed.value), "waiting longer cannot help"
        assert AGENT_TOKEN not in str(failed.value)
        agent.clear_faults()
    agent.inject(faults.JoinFails(why="server-lost"))
    told = given_up(small, agent, "the host cannot reach a server")
    assert f"join test as agent {agent.name}" in told
    assert AGENT_TOKEN not in told
    agent.clear_faults()
    assert small.create(agent).outputs["joined"] is True


def test_what_is_wrong_with_a_host_is_said_at_once_before_it_is_touched(
    small: Cluster, agent: SimulatedHost
) -> None:
    agent.inject(faults.PortTaken(port=10250), DiskNearlyFull(free_gib=3))
    agent.path("/sys/fs/cgroup/cgroup.controllers").unlink()
    apparmor = agent.path("/sys/module/apparmor/parameters")
    apparmor.mkdir(parents=True)
    (apparmor / "enabled").write_text("Y\n")
    with pytest.raises(StepFailed) as failed:
        small.create(agent)
    for words in ("on port 10250 already", "3072 MiB are free", "cgroup v1", "apparmor_parser"):
        assert words in str(failed.value)
    assert not agent.path("/var/lib/gpu-clusters/rke2").exists()


def test_a_release_whose_containerd_reads_no_drop_ins_is_named(
    small: Cluster, agent: SimulatedHost
) -> None:
    # RKE2 before v1.35.3: K3s' change 13680 is not in it, and containerd ignores the folder without a word.
    def with_drop_in(version: str) -> dict[str, Any]:
        inputs = small.inputs(agent, version=version)
        return {
            **inputs,
            "files": {**inputs["files"], releases.CONTAINERD_DROP_IN: "version = 3\n"},
        }

    with pytest.raises(
        StepFailed, match=r"does not import /var/lib/rancher/rke2/.*/config-v3\.toml\.d"
    ):
        small.provider.create(Rke2NodeProvider, with_drop_in("v1.35.2+rke2r1"))
    made = small.provider.create(Rke2NodeProvider, with_drop_in(V35))
    assert made.outputs["drift"] == []

    config = agent.path("/var/lib/rancher/rke2/agent/etc/containerd/config.toml")
    config.write_text("version = 3\n")
    drift = small.provider.read(Rke2NodeProvider, made).outputs["drift"]
    assert [one["code"] for one in drift] == ["rke2.drop-in-ignored"]


def test_a_host_is_left_alone_until_nothing_speaks_against_it(
    small: Cluster, agent: SimulatedHost
) -> None:
    program = agent.path("/usr/local/bin/rke2")
    program.write_text('#!/bin/sh\nexec rke2-stand-in v1.34.1+rke2r1 "$@"\n')
    program.chmod(0o755)
    with pytest.raises(StepFailed, match="is there already and no stack of ours installed it"):
        small.create(agent)
    assert not agent.path(releases.CONFIG).exists()
    program.unlink()

    template = agent.path("/var/lib/rancher/rke2/agent/etc/containerd/config-v3.toml.tmpl")
    template.parent.mkdir(parents=True)
    # 56 bytes that an older container toolkit left (rancher/rke2, issue 10293).
    template.write_text('imports = ["/etc/containerd/conf.d/*.toml"]\nversion = 3\n')
    with pytest.raises(StepFailed, match="takes the place of all that RKE2 writes for containerd"):
        small.create(agent)
    template.write_text('{{ template "base" . }}\n')

    artifacts = small.inputs(agent)["artifacts"]
    with pytest.raises(
        StepFailed, match=r"sha256sum-amd64.txt has the sha256 .* nothing was installed"
    ):
        small.create(agent, artifacts={**artifacts, "checksum": "0" * 64})
    agent.inject(faults.DownloadRefused(status=403))
    with pytest.raises(StepFailed, match=r"could not be downloaded.*artifacts.source: folder"):
        small.create(agent)
    assert not program.exists()

    # They may lie on the host already: nothing is downloaded.
    folder = agent.path("/opt/rke2-artifacts")
    folder.mkdir(parents=True)
    for name, data in rke2_release.files(V35).items():
        (folder / name).write_bytes(data)
    there = {"source": "folder", "location": "/opt/rke2-artifacts"}
    artifacts |= there | {"images": list(rke2_release.IMAGES)}
    assert small.create(agent, artifacts=artifacts).outputs["joined"] is True
    images = agent.path("/var/lib/rancher/rke2/agent/images")
    assert sorted(file.name for file in images.iterdir()) == sorted(rke2_release.IMAGES)


def test_what_somebody_changed_is_drift_and_is_put_back(small: Cluster) -> None:
    server = small.servers[0]
    server.path(releases.CONFIG).write_text("node-name: other\n")
    read = small.refresh(server)
    assert [(one["code"], one["path"]) for one in read.outputs["drift"]] == [
        ("rke2.file-changed", [releases.CONFIG])
    ]
    assert small.differs(server) == (True, [])
    assert small.update(server).outputs["drift"] == []
    assert f"node-name: {server.name}" in server.path(releases.CONFIG).read_text()
    # Tokens are in no command line, and only root reads them.
    journal = "\n".join(str(entry) for entry in server.journal())
    assert SERVER_TOKEN not in journal
    assert AGENT_TOKEN not in journal
    assert server.path(releases.TOKENS).stat().st_mode & 0o777 == 0o600
