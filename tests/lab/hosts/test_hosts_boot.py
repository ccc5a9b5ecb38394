"""A simulated machine before its preparation, and what a reboot of it does."""

from __future__ import annotations

import time

import pytest

from gpuclusters.vfio import decide as vfio
from lab.hosts import faults
from lab.hosts.hardware.boot import DOWN_SECONDS
from tests.fixtures.hosts import Hosts, SimulatedHost

GPU = "0000:86:00.0"


@pytest.fixture(scope="module")
def bare(hosts_pool: object) -> SimulatedHost:
    (host,) = hosts_pool.add(1, "supermicro-hgx-h100", condition="bare")  # type: ignore[attr-defined]
    assert isinstance(host, SimulatedHost)
    return host


def test_a_bare_machine_has_no_iommu_no_vfio_and_nouveau_on_its_gpus(bare: SimulatedHost) -> None:
    seen = bare.run(
        "ls /sys/kernel/iommu_groups | wc -l; ls /dev/vfio; cat /proc/cmdline; "
        f"readlink /sys/bus/pci/devices/{GPU}/driver; command -v fuser >/dev/null; fuser; "
        "cat /sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages; "
        "systemctl is-active libvirtd"
    )
    groups, nodes, line, driver, pages, libvirt = seen.stdout.split("\n")[:6]
    # kmod makes VFIO's control node at every boot; there is none of a group.
    assert (groups, nodes, pages, libvirt) == ("0", "vfio", "0", "inactive")
    assert "iommu" not in line
    assert driver.endswith("/nouveau")
    assert "not found" in seen.stderr


def test_a_boot_does_what_the_boot_loader_says_and_starts_what_is_enabled(
    bare: SimulatedHost,
) -> None:
    bare.run(
        "sudo -n tee /etc/default/grub.d/90-probe.cfg",
        stdin='GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX intel_iommu=on module_blacklist=nouveau '
        'default_hugepagesz=1G hugepagesz=1G hugepages=0:8,1:16"\n',
    )
    unit = (
        "[Unit]\nAfter=first.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\n"
        "ExecStart=/bin/sh -c 'cat /var/log/order; echo {0} >> /var/log/order; {1}'\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    for name, more in (("a-later", "exit 3"), ("first", "true")):
        text = unit.format(name, more).replace(
            "After=first", "After=" if name == "first" else "After=first"
        )
        bare.run(f"sudo -n tee /etc/systemd/system/{name}.service", stdin=text)
        bare.run(f"sudo -n systemctl enable {name}")
    assert "hugepages" not in bare.run("cat /proc/cmdline").stdout
    bare.run("sudo -n update-grub; echo x | sudo -n tee /run/lost")
    bare.reboot()
    seen = bare.run(
        "cat /proc/cmdline; ls /sys/kernel/iommu_groups | wc -l; "
        "cat /sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages; "
        f"ls /sys/bus/pci/devices/{GPU}/driver 2>/dev/null | wc -l; ls /run/lost; cat /var/log/order"
    ).stdout.split("\n")
    assert "console=ttyS0,115200n8" in seen[0]
    assert "hugepages=0:8,1:16" in seen[0]
    assert seen[1:] == ["9", "16", "0", "first", "a-later", ""]
    assert bare.run("systemctl is-active first a-later").stdout == "active\nfailed\n"
    assert "Failed with result" in bare.run("sudo -n journalctl -u a-later --no-pager").stdout
    bare.sudo("systemctl disable first a-later; rm /etc/systemd/system/first.service")


def test_writes_to_sysfs_bind_and_unbind_as_the_kernel_would(bare: SimulatedHost) -> None:
    device = f"/sys/bus/pci/devices/{GPU}"
    # What was written to sysfs has taken effect before a stand-in answers.
    look = f"lsmod > /dev/null; readlink {device}/driver"
    bare.run("sudo -n modprobe vfio-pci")
    assert bare.sudo(f"echo {GPU} > /sys/bus/pci/drivers_probe; {look}").stdout == ""
    done = bare.sudo(
        f"echo vfio-pci > {device}/driver_override; echo {GPU} > /sys/bus/pci/drivers_probe; {look}; "
        "ls /dev/vfio"
    )
    assert done.stdout.split() == ["../../../bus/pci/drivers/vfio-pci", "91", "vfio"]
    done = bare.sudo(f"echo {GPU} > {device}/driver/unbind; {look}; ls /dev/vfio")
    assert done.stdout.split() == ["vfio"]


def test_a_machine_that_does_not_come_back_comes_when_the_fault_goes(
    bare: SimulatedHost,
) -> None:
    before = bare.boot_id()
    bare.inject(faults.RebootNeverReturns())
    bare.run("sudo -n reboot")
    deadline = time.monotonic() + 120
    while not bare.refuses():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(2 * DOWN_SECONDS)
    with pytest.raises(ConnectionRefusedError):
        bare.run("true")
    bare.clear_faults()
    assert bare.wait_for_boot(before) != before


def test_a_machine_that_boots_the_wrong_entry_keeps_its_old_line(bare: SimulatedHost) -> None:
    line = bare.run("cat /proc/cmdline").stdout
    bare.sudo("rm /etc/default/grub.d/90-probe.cfg; update-grub")
    bare.inject(faults.BootsOldKernelLine())
    bare.reboot()
    assert bare.run("cat /proc/cmdline").stdout == line
    bare.clear_faults()
    bare.reboot()
    assert "iommu" not in bare.run("cat /proc/cmdline").stdout


def test_a_prepared_machine_binds_its_functions_again_after_a_reboot(hosts: Hosts) -> None:
    (host,) = hosts()
    drivers = "readlink /sys/bus/pci/devices/*/driver | grep -c vfio-pci"
    bound = host.run(drivers).stdout
    host.reboot()
    state = host.run(f"systemctl is-active {vfio.UNIT}; sudo -n journalctl -o cat -u {vfio.UNIT}")
    assert state.stdout.startswith("active\n"), state.stdout
    assert host.run(drivers).stdout == bound == "13\n"


def test_grubby_changes_the_entry_of_a_red_hat_machine(hosts: Hosts) -> None:
    (host,) = hosts(1, condition="bare", system="rocky")
    host.run(
        "sudo -n grubby --update-kernel=ALL --args='intel_iommu=on iommu=pt' --remove-args=quiet"
    )
    told = host.run("grubby --info=DEFAULT").stdout
    assert (
        'args="ro console=tty0 console=ttyS0,115200n8 crashkernel=512M intel_iommu=on iommu=pt"'
        in told
    )
    host.reboot()
    assert "iommu=pt" in host.run("cat /proc/cmdline").stdout
