"""Hosts that join an RKE2 cluster, through the SDK's provider process, real SSH and the real scripts.

The tests follow one another on a server and on a host that becomes its agent."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpuclusters.rke2 import releases
from lab.hosts import faults
from lab.hosts.rke2 import rke2_release
from tests.fixtures.hosts import SimulatedHost
from tests.providers.conftest import StartProvider
from tests.providers.rke2kit import AGENT_TOKEN, SERVER_TOKEN, V35, Cluster

PROGRAM = "/usr/local/bin/rke2"
FOLDER = "/opt/rke2-artifacts"
CONTAINERD = "/var/lib/rancher/rke2/agent/etc/containerd"


@pytest.fixture(scope="module")
def cluster(hosts_pool: Any, shared_processes: StartProvider) -> Cluster:
    hosts = hosts_pool.add(2, "plain-server")
    key = {"GPU_CLUSTERS_SSH_KEY_FILE": str(hosts[0].client_key)}
    made = Cluster(hosts, shared_processes(key))
    made.create(hosts[0])
    return made


@pytest.fixture
def agent(cluster: Cluster) -> Iterator[SimulatedHost]:
    _, host = cluster.hosts.values()
    yield host
    host.clear_faults()


def given_up(cluster: Cluster, host: SimulatedHost, words: str, **changes: Any) -> str:
    """What is said of a host that does not join in time, with these words: why it does not.

    RKE2 has to say so first. On a busy machine that may take longer than a second.
    """
    text = ""
    for seconds in (1, 8, 64):
        late = cluster.node(host, join_timeout_seconds=seconds, **changes)
        text = late.refused("create", f"not done after {seconds} s")
        if words in text:
            return text
    raise AssertionError(text)


def test_what_is_wrong_with_a_host_is_said_at_once_before_it_is_touched(
    cluster: Cluster, agent: SimulatedHost
) -> None:
    agent.inject(faults.PortTaken(port=10250), faults.DiskNearlyFull(free_gib=3))
    controllers = agent.path("/sys/fs/cgroup/cgroup.controllers")
    controllers.rename(controllers.with_name("away"))
    apparmor = agent.path("/sys/module/apparmor/parameters")
    apparmor.mkdir(parents=True)
    (apparmor / "enabled").write_text("Y\n")
    every = ("on port 10250 already", "3072 MiB are free", "cgroup v1", "apparmor_parser")
    cluster.node(agent).refused("create", *every)
    assert not agent.path("/var/lib/gpu-clusters/rke2").exists()
    controllers.with_name("away").rename(controllers)
    (apparmor / "enabled").unlink()


def test_a_host_is_left_alone_until_nothing_speaks_against_it(
    cluster: Cluster, agent: SimulatedHost
) -> None:
    program = agent.path(PROGRAM)
    program.write_text('#!/bin/sh\nexec rke2-stand-in v1.34.1+rke2r1 "$@"\n')
    program.chmod(0o755)
    node = cluster.node(agent)
    node.refused("create", "is there already and no stack of ours installed it")
    assert not agent.path(releases.CONFIG).exists()
    program.unlink()

    template = agent.path(f"{CONTAINERD}/config-v3.toml.tmpl")
    template.parent.mkdir(parents=True)
    # 56 bytes that an older container toolkit left (rancher/rke2, issue 10293).
    template.write_text('imports = ["/etc/containerd/conf.d/*.toml"]\nversion = 3\n')
    node.refused("create", "takes the place of all that RKE2 writes for containerd")
    template.unlink()

    # A closed port is found before anything is installed.
    agent.inject(faults.JoinFails(why="port-closed"))
    closed = ("does not reach the servers ", "9345", "open ports 9345 and 6443")
    node.refused("create", *closed)
    agent.clear_faults()
    wrong = ("sha256sum-amd64.txt has the sha256 ", " nothing was installed")
    node.refused("create", *wrong, artifacts={**node.wanted["artifacts"], "checksum": "0" * 64})
    agent.inject(faults.DownloadRefused(status=403))
    node.refused("create", "could not be downloaded", "artifacts.source: folder")
    agent.clear_faults()
    assert not program.exists()


def test_a_host_that_cannot_join_says_why_and_the_next_run_goes_on(
    cluster: Cluster, agent: SimulatedHost
) -> None:
    # Artifacts may lie on the host already: nothing is downloaded.
    folder = agent.path(FOLDER)
    folder.mkdir(parents=True)
    for name, data in rke2_release.files(V35).items():
        (folder / name).write_bytes(data)
    there = {"source": "folder", "location": FOLDER, "images": [*rke2_release.IMAGES]}
    changes = {"artifacts": cluster.inputs(agent)["artifacts"] | there}
    node = cluster.node(agent, **changes)
    told = []
    for why, words in {
        "wrong-token": "the servers do not accept the token",
        "clock-skew": "the clocks of this host and of the servers differ",
        "duplicate-name": "another machine is or was in the cluster under this node name",
    }.items():
        agent.inject(faults.JoinFails(why=why))
        told.append(node.refused("create", words))
        assert "not done after" not in told[-1], "waiting longer cannot help"
        agent.clear_faults()
    agent.inject(faults.JoinFails(why="server-lost"))
    told.append(given_up(cluster, agent, "the host cannot reach a server", **changes))
    for text in told:
        assert f"join test as agent {agent.name}" in text
        assert AGENT_TOKEN not in text
    agent.clear_faults()

    made = cluster.node(agent, **changes).create()
    assert (made["joined"], made["drift"]) == (True, [])
    images = agent.path("/var/lib/rancher/rke2/agent/images")
    assert sorted(file.name for file in images.iterdir()) == sorted(rke2_release.IMAGES)


def test_taints_of_a_node_that_joined_long_ago_follow_the_configuration(
    cluster: Cluster, agent: SimulatedHost
) -> None:
    # RKE2's own configuration counts at the registration alone.
    for value in ("a100", "h100", None):
        taints = [f"gpus={value}:NoSchedule"] if value else []
        config = cluster.inputs(agent)["config"] | ({"node-taint": taints} if taints else {})
        cluster.node(agent, config=config).update()
        there = cluster.nodes()[agent.name]["spec"]["taints"]
        assert [(one["key"], one["value"], one["effect"]) for one in there] == (
            [("gpus", value, "NoSchedule")] if value else []
        )


def test_a_release_whose_containerd_reads_no_drop_ins_is_named(
    cluster: Cluster, agent: SimulatedHost
) -> None:
    # RKE2 before v1.35.3: K3s' change 13680 is not in it, and containerd ignores the folder without a word.
    cluster.node(agent).delete()
    files = cluster.inputs(agent)["files"] | {releases.CONTAINERD_DROP_IN: "version = 3\n"}
    ignored = ("does not import /var/lib/rancher/rke2/", "/config-v3.toml.d")
    cluster.node(agent, version="v1.35.2+rke2r1", files=files).refused("create", *ignored)
    node = cluster.node(agent, files=files)
    assert node.create()["drift"] == []
    agent.path(f"{CONTAINERD}/config.toml").write_text("version = 3\n")
    assert [one["code"] for one in node.look().outputs["drift"]] == ["rke2.drop-in-ignored"]


def test_what_somebody_changed_is_drift_and_is_put_back(cluster: Cluster) -> None:
    server = cluster.servers[0]
    server.path(releases.CONFIG).write_text("node-name: other\n")
    node = cluster.node(server)
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
