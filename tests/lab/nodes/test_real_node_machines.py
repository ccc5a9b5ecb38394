"""Real nodes as machines under simulated hosts: switched off and on, changed, told by their hosts' files."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpuclusters.host import drop_ins
from lab import images, nodes, tools
from lab.control_plane.model import HGX_ALLOCATABLE, HGX_CAPACITY
from lab.files import write_json
from lab.hosts import control
from lab.hosts.folder import HostFolder, HostsFolder
from lab.images import archive
from lab.images.layer import File
from lab.nodes.model import NodesError
from lab.nodes.network import MACHINE
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import BUILD_SECONDS, RealLab, only_where_possible, real_lab

pytestmark = [
    pytest.mark.lab,
    pytest.mark.real_node,
    only_where_possible,
    pytest.mark.timeout(BUILD_SECONDS),
]


@pytest.fixture(scope="module")
def lab(kube_api: KubeCluster) -> Iterator[RealLab]:
    with real_lab(kube_api, 1, with_hosts=True) as made:
        yield made


def host(lab: RealLab, name: str = "") -> HostFolder:
    assert lab.hosts is not None
    return HostsFolder(lab.hosts).host(name or lab.names[0])


def machine(lab: RealLab, name: str = "") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((host(lab, name).path / "machine.json").read_text())
    return found


def inside(pid: int, *command: str) -> str:
    line = ["nsenter", f"--net=/proc/{pid}/ns/net", *command]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def test_a_host_is_told_where_its_machine_is(lab: RealLab) -> None:
    found = machine(lab)
    assert found["nodes"] == str(lab.folder)
    assert found["address"] == nodes.status(lab.folder).nodes[lab.names[0]].address
    assert f"inet {found['address']}/" in inside(found["pid"], "ip", "address")
    assert f"inet {found['bmc']['address']}/" in inside(found["bmc"]["pid"], "ip", "address")


def lives(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_our_drop_ins_are_what_containerd_and_kubelet_work_with(lab: RealLab) -> None:
    root, name = host(lab).root, lab.names[0]
    (root / drop_ins.CONTAINERD_DROP_IN[1:]).write_text(
        drop_ins.containerd(
            schema=drop_ins.ContainerdSchema.V3,
            enable_cdi=False,
            image_pull_progress_timeout_seconds=1234,
        )
    )
    # kata-deploy's shim is no program of this machine.
    (root / "etc/containerd/conf.d/kata-deploy.toml").write_text("not = [read")
    (root / drop_ins.KUBELET_DROP_IN[1:]).write_text(
        drop_ins.kubelet(runtime_request_timeout_seconds=1234)
    )
    assert nodes.control(lab.folder, name, "containerd", "restart")
    assert nodes.control(lab.folder, name, "kubelet", "restart")
    node = nodes.status(lab.folder).nodes[name]
    program = str(tools.ensure(["containerd"])["containerd"])
    dump = [program, "--config", str(node.folder / "containerd.toml"), "config", "dump"]
    dumped = output(*nodes.command_in(node, dump))
    assert "image_pull_progress_timeout = '1234s'" in dumped
    # What the drop-in does not name is as it was.
    assert "restrict_oom_score_adj = true" in dumped
    assert "kata-qemu-nvidia-gpu" in dumped
    path = f"/api/v1/nodes/{name}/proxy/configz"
    eventually(lambda: '"20m34s"' in lab.says("get", "--raw", path), "the kubelet has read it")


def test_a_machine_that_is_switched_off_is_gone_and_comes_back_as_itself(
    lab: RealLab, namespace: str
) -> None:
    name = lab.names[0]
    lab.pod(namespace, "again", "sleep 1000")
    lab.ready(namespace, "again")
    before, address = machine(lab), nodes.status(lab.folder).nodes[name].address
    assert nodes.control(lab.folder, name, "machine", "state") == before["pid"]
    assert nodes.control(lab.folder, name, "machine", "stop") is None
    assert not (host(lab).path / "machine.json").exists()
    assert not lives(before["pid"])
    assert not nodes.status(lab.folder).machines
    with pytest.raises(NodesError, match="switched off"):
        nodes.control(lab.folder, name, "kubelet", "state")
    # Who switched it off wanted that: a start does not switch it on.
    assert not lab.start().machines
    pid = nodes.control(lab.folder, name, "machine", "start")
    assert machine(lab) == {**before, "pid": pid}
    assert nodes.status(lab.folder).nodes[name].address == address
    # What a kubelet does, it says a moment later.
    eventually(lambda: restarts(lab, namespace, "again") == 1, "it was started once more")
    lab.ready(namespace, "again")
    assert lab.run_in(namespace, "again", "true").returncode == 0


def restarts(lab: RealLab, namespace: str, pod: str) -> int:
    return int(lab.found(namespace, pod)["status"]["containerStatuses"][0]["restartCount"])


def test_a_machine_that_ends_by_itself_is_seen_and_brought_back(lab: RealLab) -> None:
    before = machine(lab)["pid"]
    os.kill(before, 9)
    eventually(lambda: not nodes.status(lab.folder).machines, "it is gone")
    assert lab.start().machines[lab.names[0]].pid == machine(lab)["pid"] != before


def test_a_cable_is_cut_and_plugged_in_again(lab: RealLab) -> None:
    name, found = lab.names[0], machine(lab)
    assert nodes.control(lab.folder, name, "cable", "stop") is None
    ping = ("nsenter", f"--net=/proc/{found['bmc']['pid']}/ns/net")
    reach = [*ping, "python3", "-c", _CONNECT.format(address=found["address"])]
    assert subprocess.run(reach, check=False, capture_output=True).returncode != 0
    assert nodes.control(lab.folder, name, "cable", "state") is None
    assert nodes.control(lab.folder, name, "cable", "start") == found["pid"]
    eventually(
        lambda: subprocess.run(reach, check=False, capture_output=True).returncode == 0,
        "its kubelet is reached again",
    )
    lab_node = lab.node(name)["status"]["addresses"]
    assert found["address"] in {address["address"] for address in lab_node}


_CONNECT = "import socket; socket.create_connection(('{address}', 10250), timeout=10)"


@contextlib.contextmanager
def greeter() -> Iterator[int]:
    """A port of this machine's loopback that greets."""

    class Greets(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b"hello")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Greets) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_nodes_images_and_ports_are_added_while_others_run(
    lab: RealLab, namespace: str, tmp_path: Path
) -> None:
    name, added = lab.names[0], f"{lab.names[0]}-more"
    lab.pod(namespace, "stays", "sleep 1000", nodeName=name)
    lab.ready(namespace, "stays")
    pid = machine(lab)["pid"]
    image = archive.build("lab.local/extra:1", [[File("x", b"x")]], archive.Settings(), tmp_path)
    digest = f"lab.local/named@sha256:{'1' * 64}"
    host(lab, added).root.mkdir(parents=True)
    with greeter() as port:
        more = {"archives": [image.archive], "ports": [port], "aliases": {digest: images.BUSYBOX}}
        try:
            running = lab.start(added, **more)
            assert set(running.nodes) == {name, added}
            assert machine(lab)["pid"] == pid
            assert machine(lab, added)["address"] != machine(lab)["address"]
            by_digest = {"image": digest, "imagePullPolicy": "IfNotPresent"}
            for node in (name, added):
                pod = f"by-digest-{node[-4:]}"
                lab.pod(namespace, pod, "sleep 1000", nodeName=node, container=by_digest)
                lab.ready(namespace, pod)
                ask = ("nc", "-w", "30", MACHINE, str(port))
                eventually(
                    lambda pod=pod, ask=ask: lab.run_in(namespace, pod, *ask).stdout == "hello",
                    "the port greets",
                )
        finally:
            lab.start()
    assert set(nodes.status(lab.folder).machines) == {name}
    assert machine(lab)["pid"] == pid
    assert not (host(lab, added).path / "machine.json").exists()
    assert added not in lab.kubectl("get", "nodes", "--output=name")
    assert restarts(lab, namespace, "stays") == 0


def test_a_node_has_the_capacity_of_its_host(lab: RealLab, namespace: str) -> None:
    big = f"{lab.names[0]}-big"
    host(lab, big).root.mkdir(parents=True)
    try:
        lab.start(big, capacity={big: HGX_CAPACITY}, allocatable={big: HGX_ALLOCATABLE})
        status = lab.node(big)["status"]
        wanted = {"cpu": "224", "memory": "2Ti", "hugepages-1Gi": "1Ti", "pods": "110"}
        assert {name: status["capacity"][name] for name in wanted} == wanted
        assert status["allocatable"]["cpu"] == "220"
        assert status["allocatable"]["memory"] == "1008Gi"
        limits = {"cpu": "200", "memory": "900Gi", "hugepages-1Gi": "512Gi"}
        lab.pod(
            namespace, "big", "grep -c ^processor /proc/cpuinfo; sleep 1000",
            nodeSelector={"kubernetes.io/hostname": big},
            container={"resources": {"limits": limits, "requests": limits}},
        )  # fmt: skip
        lab.ready(namespace, "big")
        # A container sees what is really there.
        eventually(lambda: lab.logs(namespace, "big") != "", "it has counted")
        assert int(lab.logs(namespace, "big")) == len(os.sched_getaffinity(0))
        lab.pod(
            namespace, "more", "true",
            nodeSelector={"kubernetes.io/hostname": big},
            container={"resources": {"requests": {"cpu": "21"}}},
        )  # fmt: skip
        eventually(
            lambda: "Insufficient cpu" in json.dumps(lab.found(namespace, "more")["status"]),
            "there is no room for another",
        )
    finally:
        lab.start()


def test_a_host_that_joins_has_a_node_until_it_leaves(lab: RealLab, namespace: str) -> None:
    name = f"{lab.names[0]}-joins"
    entry, agent = host(lab, name), host(lab, name).root / "var/lib/rancher/rke2/agent"
    entry.root.mkdir(parents=True)
    try:
        assert name not in lab.start(name, joins=[name]).nodes
        assert machine(lab, name)["pid"] == nodes.status(lab.folder).machines[name].pid
        with pytest.raises(NodesError, match="has not joined"):
            nodes.control(lab.folder, name, "kubelet", "state")
        agent.mkdir(parents=True)
        write_json(HostsFolder(lab.folder.parent / "hosts").path / "rke2.json", joined(name))
        write_json(entry.state, {"units": {"rke2-agent.service": {"active": "active"}}})
        eventually(lambda: name in nodes.status(lab.folder).nodes, "it has joined")
        eventually(
            lambda: lab.node(name)["metadata"]["labels"].get("of-rke2") == "yes", "it has its label"
        )
        running = nodes.status(lab.folder).nodes[name]
        assert (
            "/run/k3s/containerd/containerd.sock" in (running.folder / "kubelet.yaml").read_text()
        )
        lab.pod(namespace, "there", "sleep 1000", nodeName=name)
        lab.ready(namespace, "there")
        eventually(
            lambda: removed(agent) and name not in lab.kubectl("get", "nodes", "--output=name"),
            "it has left",
        )
        eventually(
            lambda: "there" not in lab.kubectl("get", "pods", f"--namespace={namespace}"),
            "its pod is gone",
        )
        assert set(nodes.status(lab.folder).machines) == {lab.names[0], name}
    finally:
        lab.start()


def removed(folder: Path) -> bool:
    """Whether it is gone now; containerd may write to it while it goes."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def joined(name: str) -> dict[str, Any]:
    """What the stand-in of RKE2 writes down of a host that is an agent."""
    metadata = {"labels": {"of-rke2": "yes"}, "annotations": {"gpu-clusters.dev/host": name}}
    node = {"metadata": metadata, "spec": {"taints": []}}
    cluster = {"id": "c", "names": [], "members": {name: {"role": "agent"}}, "nodes": {name: node}}
    return {"c": cluster}


@contextlib.contextmanager
def server_of_hosts(lab: RealLab, hears: Callable[[str], None]) -> Iterator[None]:
    """A server that is told of what happens to machines; it answers when it has dealt with it."""
    assert lab.hosts is not None
    listening = control.listen(lab.hosts / control.SOCKET, 0o600)
    listening.setblocking(True)

    def answer() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                hears(connection.recv(100).decode().strip())
                connection.sendall(b"ok\n")

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        (lab.hosts / control.SOCKET).unlink()
        thread.join()


def test_the_server_of_hosts_is_told_of_machines(lab: RealLab) -> None:
    heard: list[str] = []
    with server_of_hosts(lab, heard.append):
        nodes.control(lab.folder, lab.names[0], "machine", "restart")
        eventually(lambda: "machines" in heard, "the server was told")


def test_nodes_do_not_run_yet_while_their_hosts_are_told_of_them(lab: RealLab) -> None:
    name, running = lab.names[0], []

    def ask(_: str) -> None:
        # As a host does that has a unit to start in its node.
        nodes.control(lab.folder, name, "machine", "state")
        running.append(nodes.status(lab.folder).running)

    nodes.stop(lab.folder)
    with server_of_hosts(lab, ask):
        assert lab.start().running
    assert running == [False]


def test_a_killed_process_leaves_no_word_of_its_machines(lab: RealLab) -> None:
    server = nodes.status(lab.folder).pid
    assert server is not None
    os.kill(server, 9)
    nodes.stop(lab.folder)
    assert not (host(lab).path / "machine.json").exists()
    lab.start()
    assert machine(lab)["pid"] == nodes.status(lab.folder).nodes[lab.names[0]].pid
