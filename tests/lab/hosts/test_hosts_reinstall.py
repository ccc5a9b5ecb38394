"""A machine whose operating system is installed anew."""

from __future__ import annotations

import pytest

import lab.hosts
from lab.hosts import HostsError
from lab.hosts.__main__ import main
from tests.fixtures.hosts import Hosts, SimulatedHost

IDENTITY = "cat /proc/sys/kernel/random/boot_id; ls /sys/bus/pci/devices"


def test_a_machine_installed_anew_has_nothing_but_its_hardware(
    hosts: Hosts, capsys: pytest.CaptureFixture[str]
) -> None:
    (host,) = hosts()
    host.run("sudo -n sh -c 'echo ours >/etc/ours'")
    boot, *hardware = host.run(IDENTITY).stdout.splitlines()
    with pytest.raises(HostsError, match=f"there is no host 'x' in .*; there are: .*{host.name}"):
        lab.hosts.reinstall(host.folder, "x")

    assert main(["reinstall", str(host.folder), host.name]) == 0
    after = lab.hosts.status(host.folder).hosts[host.name]
    assert capsys.readouterr().out == f"{after.host_key}\n"
    assert (after.address, after.port) == (host.endpoint.address, host.endpoint.port)
    assert after.host_key != host.endpoint.host_key
    assert after.bmc == host.endpoint.bmc

    anew = SimulatedHost(host.name, host.folder, after, host.client_key)
    assert anew.run("test -e /etc/ours").returncode == 1
    new_boot, *new_hardware = anew.run(IDENTITY).stdout.splitlines()
    assert new_boot != boot
    assert new_hardware == hardware
    assert anew.run("virsh list --all").returncode == 127, "bare: libvirt is not installed"
