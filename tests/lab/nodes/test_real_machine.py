"""A simulated host and the real node of its name are one machine: reached, changed, switched off and on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
import httpx
import pytest

import lab.hosts
from gpuclusters.boot.host import reboot
from gpuclusters.core.converge import Clock
from gpuclusters.host import drop_ins
from lab import images, nodes
from lab.control_plane.model import HGX_ALLOCATABLE, HGX_CAPACITY
from lab.files import write_json
from lab.hosts import control, faults
from lab.hosts.folder import HostFolder, HostsFolder
from lab.images import archive
from lab.images.layer import File
from lab.nodes.model import NodesError
from lab.nodes.network import MACHINE
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import REAL_NODE, RealLab, lives, real_lab, simulated

pytestmark = REAL_NODE

_BOOT_SECONDS = 120
_PID = "systemctl show --property MainPID --value kubelet"
_CONNECT = "import socket; socket.create_connection(('{address}', 10250), timeout=10)"


@dataclass(frozen=True)
class OneMachine:
    """A node of a cluster, and the host that is the machine under it."""

    lab: RealLab

    @property
    def name(self) -> str:
        return self.lab.names[0]

    @property
    def node(self) -> nodes.RunningNode:
        return nodes.status(self.lab.folder).machines[self.name]

    @property
    def host(self) -> SimulatedHost:
        return simulated(self.lab.folder.parent, self.name)

    def entry(self, name: str = "") -> HostFolder:
        """The folder of a host."""
        return HostsFolder(self.lab.folder.parent / "hosts").host(name or self.name)

    def announced(self, name: str = "") -> dict[str, Any]:
        """What a host is told of its node."""
        found: dict[str, Any] = json.loads(self.entry(name).machine.read_text())
        return found

    def control(self, program: str, action: str) -> int | None:
        return nodes.control(self.lab.folder, self.name, program, action)

    def is_ready(self) -> bool:
        return self.lab.is_ready(self.name)

    @contextlib.contextmanager
    def beside(self, suffix: str) -> Iterator[str]:
        """The name of a node that is added, with a host under it that no server has; it goes afterwards."""
        name = f"{self.name}-{suffix}"
        self.entry(name).root.mkdir(parents=True)
        try:
            yield name
        finally:
            self.lab.start()
        assert not self.entry(name).machine.exists()


@pytest.fixture(scope="module")
def one(kube_api: KubeCluster) -> Iterator[OneMachine]:
    with real_lab(kube_api, with_hosts=True) as made:
        one = OneMachine(made)
        yield one
        nodes.stop(made.folder)
        assert one.host.endpoint.address == "127.0.0.1", "without its node a host is on loopback"


def test_host_and_management_controller_answer_to_the_machine_and_to_pods(
    one: OneMachine, namespace: str
) -> None:
    endpoint, node = one.host.endpoint, one.node
    assert (endpoint.address, endpoint.port) == (node.address, 22)
    seen = one.host.run("hostname; readlink /proc/self/ns/net").stdout.split()
    assert seen == [one.name, str(Path(f"/proc/{node.pid}/ns/net").readlink())]
    context = ssl.create_default_context(cadata=endpoint.bmc.certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    bmc = endpoint.bmc
    with httpx.Client(base_url=bmc.url, verify=context, auth=(bmc.user, bmc.password)) as client:
        assert client.get("/redfish/v1/UpdateService/FirmwareInventory").status_code == 200

    one.lab.pod(namespace, "client", "sleep 1000")
    one.lab.ready(namespace, "client")
    banner = one.lab.run_in(namespace, "client", "nc", "-w", "5", endpoint.address, "22")
    assert banner.stdout.startswith("SSH-2.0-")
    # busybox speaks no TLS of today: that somebody listens is what it can say.
    address = bmc.url.removeprefix("https://").removesuffix(":443")
    there = f"nc -w 5 {address} 443 < /dev/null"
    assert one.lab.run_in(namespace, "client", "sh", "-c", there).returncode == 0


def test_faults_of_connections_are_met_in_the_nodes_network_too(one: OneMachine) -> None:
    for fault, command, error in (
        (faults.RefuseConnections(), "true", ConnectionRefusedError),
        (faults.WrongHostKey(), "true", asyncssh.HostKeyNotVerifiable),
        (
            faults.DropConnectionAfter(bytes=3000),
            "head -c 100000 /dev/zero",
            (asyncssh.Error, OSError),
        ),
    ):
        one.host.inject(fault)
        with pytest.raises(error):
            one.host.run(command)
        one.host.clear_faults()
    assert one.host.run("true").returncode == 0
    assert one.host.commands()[-1] == "true"


def test_a_restart_of_the_kubelet_over_ssh_gives_another_process(one: OneMachine) -> None:
    before = one.host.run(_PID).stdout
    assert int(before) == one.control("kubelet", "state")
    assert one.host.run("sudo -n systemctl restart kubelet").returncode == 0
    after = one.host.run(_PID).stdout
    assert int(after) == one.control("kubelet", "state")
    assert after != before
    assert "Starting kubelet" in one.host.sudo("journalctl -u kubelet -o cat").stdout


def test_drop_ins_written_over_ssh_are_what_containerd_and_kubelet_work_with(
    one: OneMachine,
) -> None:
    ours = drop_ins.containerd(
        schema=drop_ins.ContainerdSchema.V3,
        enable_cdi=False,
        image_pull_progress_timeout_seconds=1234,
    )
    header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    for path, text in (
        (drop_ins.CONTAINERD_DROP_IN, ours),
        # kata-deploy's shim is no program of this machine.
        ("/etc/containerd/conf.d/kata-deploy.toml", "not = [read"),
        (drop_ins.KUBELET_DROP_IN, f"{header}maxPods: many\n"),
    ):
        assert one.host.run(f"sudo -n tee {path}", stdin=text).returncode == 0
    assert one.host.run("sudo -n systemctl restart containerd").returncode == 0
    dumped = one.lab.containerd(one.name, one.node.folder / "containerd.toml")
    assert "image_pull_progress_timeout = '1234s'" in dumped
    # What the drop-in does not name is as it was.
    assert "restrict_oom_score_adj = true" in dumped
    assert "kata-qemu-nvidia-gpu" in dumped
    failed = one.host.run("sudo -n systemctl restart kubelet")
    assert (failed.returncode, "failed" in failed.stderr) == (1, True)
    assert one.host.run("systemctl is-failed kubelet").stdout == "failed\n"
    assert one.control("kubelet", "state") is None
    assert "maxPods" in one.host.sudo("journalctl -u kubelet -o cat").stdout
    right = drop_ins.kubelet(runtime_request_timeout_seconds=1234)
    one.host.run(f"sudo -n tee {drop_ins.KUBELET_DROP_IN}", stdin=right)
    assert one.host.run("sudo -n systemctl restart kubelet").returncode == 0
    assert one.host.run("systemctl is-active kubelet").stdout == "active\n"
    path = f"/api/v1/nodes/{one.name}/proxy/configz"
    eventually(lambda: '"20m34s"' in one.lab.says("get", "--raw", path), "the kubelet has read it")
    eventually(one.is_ready, "the node is Ready")


def test_a_machine_that_is_switched_off_is_gone_and_comes_back_as_itself(
    one: OneMachine, namespace: str
) -> None:
    one.lab.pod(namespace, "again", "sleep 1000")
    one.lab.ready(namespace, "again")
    before, address = one.announced(), one.node.address
    assert one.control("machine", "state") == before["pid"]
    assert one.control("machine", "stop") is None
    assert not one.entry().machine.exists()
    assert not lives(before["pid"])
    assert not nodes.status(one.lab.folder).machines
    with pytest.raises(NodesError, match="switched off"):
        one.control("kubelet", "state")
    # Who switched it off wanted that: a start does not switch it on.
    assert not one.lab.start().machines
    pid = one.control("machine", "start")
    assert one.announced() == {**before, "pid": pid}
    assert one.node.address == address
    # What a kubelet does, it says a moment later.
    eventually(lambda: one.lab.restarts(namespace, "again") == 1, "it was started once more")
    one.lab.ready(namespace, "again")
    assert one.lab.run_in(namespace, "again", "true").returncode == 0


def test_a_reboot_over_ssh_is_one_of_the_node_and_its_pods_run_again(
    one: OneMachine, namespace: str
) -> None:
    one.lab.pod(namespace, "stays", "sleep 1000")
    one.lab.ready(namespace, "stays")
    boot, pid = one.host.boot_id(), one.node.pid
    one.host.forget()
    reboot(one.host.ssh, Clock(), boot.strip(), _BOOT_SECONDS)
    now = one.host.boot_id()
    assert now != boot
    assert one.node.pid != pid
    assert one.host.endpoint.port == 22
    assert one.host.run("systemctl is-active kubelet containerd").returncode == 0
    eventually(
        lambda: one.lab.node(one.name)["status"]["nodeInfo"]["bootID"] == now.strip(),
        "the cluster knows of the boot",
    )
    eventually(lambda: one.lab.restarts(namespace, "stays") > 0, "the pod was started again")
    one.lab.ready(namespace, "stays")
    eventually(one.is_ready, "the node is Ready")
    assert [entry["action"] for entry in one.host.journal("power")] == ["reboot", "up"]


def test_a_cable_is_cut_and_plugged_in_again(one: OneMachine) -> None:
    found = one.announced()
    assert one.control("cable", "stop") is None
    inside = ["nsenter", f"--net=/proc/{found['bmc']['pid']}/ns/net"]
    line = [*inside, "python3", "-c", _CONNECT.format(address=found["address"])]

    def reached() -> bool:
        return subprocess.run(line, check=False, capture_output=True).returncode == 0

    assert not reached()
    assert one.control("cable", "state") is None
    assert one.control("cable", "start") == found["pid"]
    eventually(reached, "its kubelet is reached again")


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


def test_nodes_images_ports_and_capacity_are_added_while_others_run(
    one: OneMachine, namespace: str, tmp_path: Path
) -> None:
    lab, name = one.lab, one.name
    lab.pod(namespace, "stays", "sleep 1000", nodeName=name)
    lab.ready(namespace, "stays")
    pid = one.node.pid
    image = archive.build("lab.local/extra:1", [[File("x", b"x")]], archive.Settings(), tmp_path)
    digest = f"lab.local/named@sha256:{'1' * 64}"
    by_digest = {"image": digest, "imagePullPolicy": "IfNotPresent"}
    with greeter() as port, one.beside("more") as added:
        running = lab.start(
            added,
            capacity=HGX_CAPACITY,
            allocatable=HGX_ALLOCATABLE,
            archives=[image.archive],
            ports=(port,),
            aliases={digest: images.BUSYBOX},
        )
        assert set(running.nodes) == {name, added}
        assert one.node.pid == pid
        assert one.announced(added)["address"] != one.announced()["address"]
        for node in (name, added):
            pod = f"by-digest-{node[-4:]}"
            lab.pod(namespace, pod, "sleep 1000", nodeName=node, container=by_digest)
            lab.ready(namespace, pod)
            ask = ("nc", "-w", "30", MACHINE, str(port))
            eventually(
                lambda pod=pod, ask=ask: lab.run_in(namespace, pod, *ask).stdout == "hello",
                "the port greets",
            )
        has_the_capacity_of_its_host(lab, namespace, added)
    assert set(nodes.status(lab.folder).machines) == {name}
    assert one.node.pid == pid
    assert added not in lab.kubectl("get", "nodes", "--output=name")
    assert lab.restarts(namespace, "stays") == 0


def has_the_capacity_of_its_host(lab: RealLab, namespace: str, big: str) -> None:
    status = lab.node(big)["status"]
    wanted = {"cpu": "224", "memory": "2Ti", "hugepages-1Gi": "1Ti", "pods": "110"}
    assert {name: status["capacity"][name] for name in wanted} == wanted
    assert (status["allocatable"]["cpu"], status["allocatable"]["memory"]) == ("220", "1008Gi")
    limits = {"cpu": "200", "memory": "900Gi", "hugepages-1Gi": "512Gi"}
    there = {"nodeSelector": {"kubernetes.io/hostname": big}}
    lab.pod(
        namespace, "big", "grep -c ^processor /proc/cpuinfo; sleep 1000",
        container={"resources": {"limits": limits, "requests": limits}}, **there,
    )  # fmt: skip
    lab.ready(namespace, "big")
    # A container sees what is really there.
    eventually(lambda: lab.logs(namespace, "big") != "", "it has counted")
    assert int(lab.logs(namespace, "big")) == len(os.sched_getaffinity(0))
    too_much = {"resources": {"requests": {"cpu": "21"}}}
    lab.pod(namespace, "more", "true", container=too_much, **there)
    eventually(
        lambda: "Insufficient cpu" in json.dumps(lab.found(namespace, "more")["status"]),
        "there is no room for another",
    )


def test_a_host_that_joins_has_a_node_until_it_leaves(one: OneMachine, namespace: str) -> None:
    lab = one.lab
    with one.beside("joins") as name:
        entry = one.entry(name)
        agent = entry.root / "var/lib/rancher/rke2/agent"
        assert name not in lab.start(name, joins=(name,)).nodes
        assert one.announced(name)["pid"] == nodes.status(lab.folder).machines[name].pid
        with pytest.raises(NodesError, match="has not joined"):
            nodes.control(lab.folder, name, "kubelet", "state")
        agent.mkdir(parents=True)
        write_json(lab.folder.parent / "hosts" / "rke2.json", joined(name))
        write_json(entry.state, {"units": {"rke2-agent.service": {"active": "active"}}})
        eventually(lambda: name in nodes.status(lab.folder).nodes, "it has joined")
        eventually(
            lambda: lab.node(name)["metadata"]["labels"].get("of-rke2") == "yes", "it has its label"
        )
        running = nodes.status(lab.folder).nodes[name]
        told = (running.folder / "kubelet.yaml").read_text()
        assert "/run/k3s/containerd/containerd.sock" in told
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
        assert set(nodes.status(lab.folder).machines) == {one.name, name}


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


def test_what_ends_by_itself_is_seen_and_brought_back(one: OneMachine) -> None:
    """First the machine, then whoever holds it: its host is on loopback meanwhile."""
    before = one.node.pid
    os.kill(before, 9)
    eventually(lambda: not nodes.status(one.lab.folder).machines, "it is gone")
    assert one.lab.start().machines[one.name].pid == one.announced()["pid"] != before
    server = nodes.status(one.lab.folder).pid
    assert server is not None
    os.kill(server, 9)
    eventually(lambda: one.host.endpoint.address == "127.0.0.1", "the host is on loopback")
    assert one.host.run("systemctl is-active kubelet").stdout == "active\n"
    nodes.stop(one.lab.folder)
    assert not one.entry().machine.exists()
    one.lab.start()
    assert one.announced()["pid"] == one.node.pid
    assert one.host.endpoint.address == one.node.address


def test_a_server_of_hosts_finds_the_node_and_no_number_of_a_process_misleads_it(
    one: OneMachine,
) -> None:
    folder = one.lab.folder.parent / "hosts"
    specs = [lab.hosts.HostSpec(one.name, condition="node")]
    lab.hosts.stop(folder)
    assert lab.hosts.start(folder, specs)[one.name].address == one.node.address
    said = one.announced()
    # This process is in the machine's network, which has not the node's address.
    write_json(one.entry().machine, {**said, "pid": os.getpid()})
    with pytest.raises(lab.hosts.HostsError, match="cannot be listened on"):
        control.tell(HostsFolder(folder), "machines")
    write_json(one.entry().machine, said)
    control.tell(HostsFolder(folder), "machines")
    assert one.host.run("hostname").stdout == f"{one.name}\n"


def test_another_operating_system_is_installed_on_a_node_that_forgets_too(one: OneMachine) -> None:
    before, pid = one.host.endpoint, one.node.pid
    assert one.host.sudo("touch /etc/ours").returncode == 0
    endpoint = lab.hosts.reinstall(one.host.folder, one.name)
    assert (endpoint.address, endpoint.port) == (before.address, 22)
    assert endpoint.host_key != before.host_key
    assert one.node.pid != pid
    assert one.host.run("ls /etc/ours").returncode != 0
    eventually(one.is_ready, "the node is Ready")
