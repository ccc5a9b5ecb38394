"""Simulated machines that run NVIDIA's driver themselves: bare, installed by hand, rebooted, divided."""

from __future__ import annotations

import pytest

import lab.hosts
from lab.hosts import faults
from lab.hosts.model import HostsError
from tests.fixtures.hosts import Hosts, SimulatedHost

KERNEL = "6.14.0-37-generic"


def state(host: SimulatedHost) -> lab.hosts.GpuState:
    return lab.hosts.gpu_state(host.folder, host.name)


def test_a_newer_driver_waits_for_a_boot_and_its_fabric_manager_must_fit(hosts: Hosts) -> None:
    (host,) = hosts(1, platform="plain-gpu-a100")
    host.sudo(
        f"apt-get install -y linux-modules-nvidia-595-server-open-{KERNEL} "
        "nvidia-utils-595-server=595.91.07*"
    )
    mismatch = host.run("nvidia-smi")
    assert mismatch.returncode == 18
    assert "Driver/library version mismatch" in mismatch.stdout
    assert (state(host).driver_version, state(host).installed_version) == (
        "580.178.04",
        "595.91.07",
    )
    host.reboot()
    assert state(host).driver_version == "595.91.07"
    # It came back with the manager of the old driver, which refuses the new one.
    assert host.run("systemctl is-active nvidia-fabricmanager").stdout == "failed\n"
    assert (
        "don't match with driver version 595.91.07"
        in host.sudo("journalctl -u nvidia-fabricmanager -o cat --no-pager").stdout
    )


def test_volta_has_no_open_modules_and_ends_with_branch_580(hosts: Hosts) -> None:
    (host,) = hosts(1, platform="plain-gpu-v100")
    found = state(host)
    assert (found.product, found.count, found.usable) == ("Tesla V100-SXM2-16GB", 4, 4)
    assert found.mig is None
    assert host.run("modinfo -F license nvidia").stdout == "NVIDIA\n"
    host.sudo(
        f"apt-get install -y linux-modules-nvidia-595-server-{KERNEL} nvidia-utils-595-server=595.91.07*"
    )
    host.reboot()
    assert state(host).usable == 0


def test_modules_that_nobody_signed_are_rejected_under_secure_boot(hosts: Hosts) -> None:
    (host,) = hosts(1, platform="plain-gpu-a100", condition="bare", system="rocky")
    host.inject(faults.SecureBoot())
    host.sudo("dnf install -y mokutil")
    assert host.run("mokutil --sb-state").stdout == "SecureBoot enabled\n"
    host.sudo("modprobe -r nouveau")
    enabled = host.sudo("dnf module enable -y nvidia-driver:580-open")
    assert enabled.returncode == 0, enabled.stderr
    assert host.sudo('dnf install -y "nvidia-open-580.178.04*"').returncode == 0
    assert "Key was rejected by service" in host.sudo("modprobe nvidia").stderr
    host.clear_faults()
    assert host.sudo("modprobe nvidia").returncode == 0
    assert state(host).driver_version == "580.178.04"


def test_gpus_are_divided_by_the_lab(hosts: Hosts) -> None:
    (host,) = hosts(1, platform="plain-gpu-a100")
    lab.hosts.set_mig(host.folder, host.name, {0: ["1g.10gb", "3g.40gb"]})
    assert state(host).mig == {0: ("1g.10gb", "3g.40gb")}
    assert host.run("nvidia-smi -L").stdout.count("  MIG ") == 2
    with pytest.raises(HostsError, match="Insufficient Resources"):
        lab.hosts.set_mig(host.folder, host.name, {0: ["1g.10gb", "7g.80gb"]})
    lab.hosts.set_mig(host.folder, host.name, {1: ["1g.10gb"] * 7})
    assert state(host).mig == {1: ("1g.10gb",) * 7}
    with pytest.raises(HostsError, match=r"no profile 1g\.5gb"):
        lab.hosts.set_mig(host.folder, host.name, {1: ["1g.5gb"]})
