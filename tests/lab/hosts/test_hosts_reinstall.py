"""A machine whose operating system is installed anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import lab.hosts
from lab.hosts import HostsError
from lab.hosts.__main__ import main
from tests.fixtures.hosts import SimulatedHost

IDENTITY = "cat /proc/sys/kernel/random/boot_id; ls /sys/bus/pci/devices"


def test_a_machine_installed_anew_has_nothing_but_its_hardware(
    hosts: Callable[..., list[SimulatedHost]],
) -> None:
    (host,) = hosts()
    host.run("sudo -n sh -c 'echo ours >/etc/ours'")
    boot, *hardware = host.run(IDENTITY).stdout.splitlines()

    after = lab.hosts.reinstall(host.folder, host.name)
    assert (after.address, after.port) == (host.endpoint.address, host.endpoint.port)
    assert after.host_key != host.endpoint.host_key
    assert after.bmc == host.endpoint.bmc

    anew = SimulatedHost(host.name, host.folder, after, host.client_key)
    assert anew.run("test -e /etc/ours").returncode == 1
    new_boot, *new_hardware = anew.run(IDENTITY).stdout.splitlines()
    assert new_boot != boot
    assert new_hardware == hardware
    assert anew.run("virsh list --all").returncode == 127, "bare: libvirt is not installed"


def test_only_a_known_host_is_installed_anew(
    hosts: Callable[..., list[SimulatedHost]],
) -> None:
    (host,) = hosts()
    with pytest.raises(HostsError, match=f"there is no host 'x' in .*; there are: .*{host.name}"):
        lab.hosts.reinstall(host.folder, "x")


def test_the_command_installs_a_machine_anew_and_prints_its_host_key(
    hosts: Callable[..., list[SimulatedHost]], capsys: pytest.CaptureFixture[str]
) -> None:
    (host,) = hosts()
    assert main(["reinstall", str(host.folder), host.name]) == 0
    after = lab.hosts.status(host.folder).hosts[host.name]
    assert capsys.readouterr().out == f"{after.host_key}\n"
    assert after.host_key != host.endpoint.host_key
