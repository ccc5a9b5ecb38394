"""Real nodes beside the control plane: kubelet, containerd and runc, and that nothing of them stays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lab import nodes
from lab.nodes.network import token
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.waiting import eventually
from tests.lab.nodes import cgroup_files, this_machine
from tests.lab.nodes.real_lab import BUILD_SECONDS, RealLab, only_where_possible, real_lab
from tests.lab.nodes.this_machine import Seen

pytestmark = [
    pytest.mark.lab,
    pytest.mark.real_node,
    only_where_possible,
    pytest.mark.timeout(BUILD_SECONDS),
]


LIMITS = ("memory.limit_in_bytes", "memory.max")


@pytest.fixture(scope="module")
def before(kube_api: KubeCluster) -> Seen:
    """The machine without these nodes."""
    return this_machine.seen()


@pytest.fixture(scope="module")
def lab(kube_api: KubeCluster, before: Seen) -> Iterator[RealLab]:
    with real_lab(kube_api, 2) as made:
        yield made


def lives(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        # It is a child of this process, which has not waited for it.
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def processes_of(folder: Path) -> list[psutil.Process]:
    """Every process that has to do with the folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(folder) in word for word in process.cmdline()):
                found.append(process)
    return found


def test_the_nodes_are_what_kubectl_shows_of_real_ones(lab: RealLab) -> None:
    for name in lab.names:
        info = lab.node(name)["status"]["nodeInfo"]
        assert info["containerRuntimeVersion"].startswith("containerd://2.")
        assert info["kubeletVersion"] == "v1.36.3"


def test_limits_are_set_in_the_cgroups_of_the_node(lab: RealLab, namespace: str) -> None:
    container = {"resources": {"limits": {"memory": "32Mi", "cpu": "100m"}}}
    lab.pod(namespace, "small", "sleep 1000", container=container)
    lab.ready(namespace, "small")
    pod = lab.found(namespace, "small")
    group = f"gpu-clusters-{token(lab.folder)}-{pod['spec']['nodeName']}"
    groups = [Path("/sys/fs/cgroup/memory", group), Path("/sys/fs/cgroup", group)]
    limits = cgroup_files.of_pod(groups, pod["metadata"]["uid"], LIMITS)
    assert str(32 << 20) in limits


@pytest.mark.attack(
    by="whoever may make pods on a real node of the lab",
    tries="write as root into the computer's /opt, /home and /root from a container",
    stopped_by="the node's folders are copies in memory",
)
def test_root_in_a_hostpath_pod_writes_nothing_on_the_computer(
    lab: RealLab, namespace: str
) -> None:
    name = f"by-a-pod-{lab.token}"
    places = ("/opt", "/home", "/root")
    mounts = [{"name": p[1:], "mountPath": f"/machine{p}"} for p in places]
    volumes = [{"name": p[1:], "hostPath": {"path": p}} for p in places]
    write = "; ".join(f"echo here > /machine{p}/{name}" for p in places)
    lab.pod(
        namespace,
        "writes",
        f"{write}; cat /machine/*/{name}; sleep 1000",
        container={"volumeMounts": mounts},
        volumes=volumes,
    )
    eventually(lambda: lab.logs(namespace, "writes") == "here\n" * 3, "what it wrote")
    assert [place for place in places if Path(place, name).exists()] == []


def test_a_second_start_changes_nothing(lab: RealLab) -> None:
    before = nodes.status(lab.folder)
    assert lab.start() == before


def test_pods_live_on_while_their_kubelet_is_restarted(lab: RealLab, namespace: str) -> None:
    lab.pod(namespace, "lives", "sleep 1000", nodeName=lab.names[0])
    lab.ready(namespace, "lives")
    first = nodes.control(lab.folder, lab.names[0], "kubelet", "stop")
    assert first is None
    assert nodes.control(lab.folder, lab.names[0], "kubelet", "start")
    assert nodes.control(lab.folder, lab.names[0], "containerd", "restart")
    eventually(
        lambda: lab.run_in(namespace, "lives", "true").returncode == 0, "its kubelet answers again"
    )
    status = lab.found(namespace, "lives")["status"]["containerStatuses"][0]
    assert status["restartCount"] == 0


def test_what_a_node_has_not_is_refused_by_name(lab: RealLab) -> None:
    with pytest.raises(nodes.NodesError, match="no program 'docker'"):
        nodes.control(lab.folder, lab.names[0], "docker", "start")
    with pytest.raises(nodes.NodesError, match="no node 'other'"):
        nodes.control(lab.folder, "other", "kubelet", "start")


def test_after_a_kill_of_everything_a_start_begins_anew(lab: RealLab, namespace: str) -> None:
    lab.pod(namespace, "again", "sleep 1000", nodeName=lab.names[0])
    lab.ready(namespace, "again")
    before = nodes.status(lab.folder)
    for process in processes_of(lab.folder):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    eventually(lambda: not nodes.status(lab.folder).running, "it is seen to be gone")
    assert "gone without having been stopped" in nodes.status(lab.folder).detail
    after = lab.start()
    assert after.running
    assert after.pid != before.pid
    assert after.subnet == before.subnet
    eventually(
        lambda: lab.run_in(namespace, "again", "true").returncode == 0, "the pod runs once more"
    )


def test_a_stop_leaves_the_machine_as_it_was(lab: RealLab, before: Seen) -> None:
    own = token(lab.folder)
    running = this_machine.seen(lab.folder)
    assert any(own in name for name in running["interfaces"])
    nodes.stop(lab.folder)
    stopped = this_machine.seen(lab.folder)
    nodes.stop(lab.folder)
    try:
        assert this_machine.of(stopped, own) == []
        # While the nodes ran, the machine had their interface, its routes and their cgroups: nothing else.
        assert this_machine.changed(running, stopped, lab.folder) == {}
        assert this_machine.changed(before, stopped, lab.folder) == {}
        assert not processes_of(lab.folder)
        assert not (lab.folder / "undo.json").exists()
    finally:
        lab.start()


def test_a_lab_whose_folder_was_removed_ends_by_itself(kube_api: KubeCluster) -> None:
    with real_lab(kube_api) as other:
        own = token(other.folder)
        held = nodes.status(other.folder).pid
        assert held is not None
        (other.folder / "process.json").unlink()
        eventually(lambda: not lives(held), "the process has ended")
        assert this_machine.of(this_machine.seen(other.folder), own) == []
