"""A simulated host and the real node of its name are one machine: reached, restarted and rebooted as one."""

from __future__ import annotations

import secrets
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

import lab.hosts
from gpuclusters.boot.host import reboot
from gpuclusters.core.converge import Clock
from gpuclusters.host import drop_ins
from lab import images, nodes, tools
from lab.hosts import journal
from lab.hosts.model import HostEndpoint, HostSpec
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import BUILD_SECONDS, RealLab, only_where_possible

pytestmark = [
    pytest.mark.lab,
    pytest.mark.real_node,
    only_where_possible,
    pytest.mark.timeout(BUILD_SECONDS),
]

_BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
_BOOT_SECONDS = 120
_PID = "systemctl show --property MainPID --value kubelet"


@dataclass(frozen=True)
class OneMachine:
    """A node of a cluster, and the host that is the machine under it."""

    lab: RealLab
    hosts: Path

    @property
    def name(self) -> str:
        return self.lab.names[0]

    @property
    def endpoint(self) -> HostEndpoint:
        return lab.hosts.status(self.hosts).hosts[self.name]

    @property
    def host(self) -> SimulatedHost:
        key = self.hosts.parent / "ssh" / "id_ed25519"
        return SimulatedHost(self.name, self.hosts, self.endpoint, key)

    def is_ready(self) -> bool:
        conditions = self.lab.node(self.name)["status"]["conditions"]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@pytest.fixture(scope="module")
def one(kube_api: KubeCluster) -> Iterator[OneMachine]:
    kubectl = tools.ensure([*nodes.TOOLS, "kubectl"])["kubectl"]
    archives = images.basic(print)
    token = secrets.token_hex(4)
    name = f"real-{token}-0"
    folder = Path(tempfile.mkdtemp(prefix="machine-", dir=kube_api.folder))
    client = (str(kubectl), f"--kubeconfig={kube_api.kubeconfig}")
    real = RealLab(
        folder / "nodes", kube_api, (name,), token, archives, {}, (), False, client,
        hosts=folder / "hosts",
    )  # fmt: skip
    try:
        lab.hosts.start(folder / "hosts", [HostSpec(name, condition="node")])
        real.start()
        yield OneMachine(real, folder / "hosts")
    finally:
        nodes.stop(real.folder)
        after = lab.hosts.status(folder / "hosts").hosts
        lab.hosts.stop(folder / "hosts")
        with kube_api.api() as api:
            api.delete(f"/api/v1/nodes/{name}")
        shutil.rmtree(folder)
    assert after[name].address == "127.0.0.1", "without its node a host is on loopback again"


def test_host_and_management_controller_answer_to_the_machine_and_to_pods(
    one: OneMachine, namespace: str
) -> None:
    endpoint = one.endpoint
    node = nodes.status(one.lab.folder).nodes[one.name]
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


def test_a_restart_of_the_kubelet_over_ssh_gives_another_process(one: OneMachine) -> None:
    before = one.host.run(_PID).stdout
    assert int(before) == nodes.control(one.lab.folder, one.name, "kubelet", "state")
    assert one.host.run("sudo -n systemctl restart kubelet").returncode == 0
    after = one.host.run(_PID).stdout
    assert int(after) == nodes.control(one.lab.folder, one.name, "kubelet", "state")
    assert after != before
    assert "Starting kubelet" in one.host.sudo("journalctl -u kubelet -o cat").stdout
    eventually(one.is_ready, "the node is Ready")


def test_a_drop_in_of_the_kubelet_that_is_wrong_fails_its_unit_and_one_that_is_right_counts(
    one: OneMachine,
) -> None:
    write = f"sudo -n tee {drop_ins.KUBELET_DROP_IN}"
    header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    one.host.run(write, stdin=f"{header}maxPods: many\n")
    failed = one.host.run("sudo -n systemctl restart kubelet")
    assert failed.returncode == 1
    assert "failed" in failed.stderr
    assert one.host.run("systemctl is-failed kubelet").stdout == "failed\n"
    assert nodes.control(one.lab.folder, one.name, "kubelet", "state") is None
    assert "maxPods" in one.host.sudo("journalctl -u kubelet -o cat").stdout
    one.host.run(write, stdin=f"{header}maxPods: 42\n")
    assert one.host.run("sudo -n systemctl restart kubelet").returncode == 0
    assert one.host.run("systemctl is-active kubelet").stdout == "active\n"
    eventually(
        lambda: one.lab.node(one.name)["status"]["capacity"]["pods"] == "42", "the drop-in counts"
    )
    eventually(one.is_ready, "the node is Ready")


def test_a_file_written_over_ssh_is_what_containerd_reads(one: OneMachine) -> None:
    one.host.run("sudo -n mkdir -p /etc/cdi; echo '{}' | sudo -n tee /etc/cdi/probe.json")
    node = nodes.status(one.lab.folder).nodes[one.name]
    read = nodes.command_in(node, ["cat", "/etc/cdi/probe.json"])
    assert subprocess.run(read, capture_output=True, check=True).stdout == b"{}\n"
    one.host.run("sudo -n rm /etc/cdi/probe.json")


def test_a_reboot_over_ssh_is_one_of_the_node_and_its_pods_run_again(
    one: OneMachine, namespace: str
) -> None:
    one.lab.pod(namespace, "stays", "sleep 1000")
    one.lab.ready(namespace, "stays")
    boot, pid = one.host.run(_BOOT_ID).stdout, nodes.status(one.lab.folder).nodes[one.name].pid
    journal.clear(one.hosts, one.name)
    reboot(one.host.ssh, Clock(), boot.strip(), _BOOT_SECONDS)
    assert one.host.run(_BOOT_ID).stdout != boot
    assert nodes.status(one.lab.folder).nodes[one.name].pid != pid
    assert one.endpoint.port == 22
    assert one.host.run("systemctl is-active kubelet containerd").returncode == 0
    eventually(
        lambda: (
            one.lab.node(one.name)["status"]["nodeInfo"]["bootID"]
            == one.host.run(_BOOT_ID).stdout.strip()
        ),
        "the cluster knows of the boot",
    )
    eventually(lambda: restarts(one, namespace, "stays") > 0, "the pod was started again")
    one.lab.ready(namespace, "stays")
    eventually(one.is_ready, "the node is Ready")
    assert [e["action"] for e in journal.read(one.hosts, one.name, "power")] == ["reboot", "up"]


def restarts(one: OneMachine, namespace: str, pod: str) -> int:
    found = one.lab.found(namespace, pod)["status"].get("containerStatuses", [])
    return sum(container["restartCount"] for container in found)
