"""The other stand-ins, as a script on a host meets them."""

from __future__ import annotations

import pytest

from tests.fixtures.hosts import Hosts, SimulatedHost


@pytest.fixture
def host(hosts: Hosts) -> SimulatedHost:
    return hosts()[0]


def test_modules_and_bus_addresses_are_those_of_the_published_example(
    host: SimulatedHost,
) -> None:
    order = host.run("lspci -d 10de:2330 | cut -d: -f1").stdout.split()
    assert order == ["0f", "10", "41", "44", "86", "87", "b8", "bb"]
    from lab.hosts.hardware.board import board

    gpus = board("supermicro-hgx-h100").gpus
    index = {module: order.index(gpu.address[5:7]) for module, gpu in gpus.items()}
    assert index == {1: 4, 2: 6, 3: 5, 4: 7, 5: 0, 6: 2, 7: 1, 8: 3}


def test_systemctl_restarts_are_counted_and_need_root(host: SimulatedHost) -> None:
    denied = host.run("systemctl restart containerd")
    assert denied.returncode == 1
    assert "Interactive authentication required" in denied.stderr
    assert host.run("sudo -n systemctl restart containerd kubelet").returncode == 0
    restarted = [e["unit"] for e in host.journal("unit") if e["action"] == "restart"]
    assert restarted == ["containerd.service", "kubelet.service"]


def test_apt_get_installs_pinned_versions_once(host: SimulatedHost) -> None:
    install = "sudo -n apt-get install -y containerd.io=2.2.4-1"
    assert "1 newly installed" in host.run(install).stdout
    assert "already the newest version" in host.run(install).stdout
    assert [e["installed"] for e in host.journal("packages")] == [{"containerd.io": "2.2.4-1"}]


def test_a_host_shows_its_public_key_where_openssh_keeps_it(host: SimulatedHost) -> None:
    shown = host.run("cat /etc/ssh/ssh_host_ed25519_key.pub").stdout
    assert shown.startswith(host.endpoint.host_key)
