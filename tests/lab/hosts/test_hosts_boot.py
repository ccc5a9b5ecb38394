"""A simulated machine before its preparation, and what a reboot of it does."""

from __future__ import annotations

import pytest

from tests.fixtures.hosts import SimulatedHost

GPU = "0000:86:00.0"


@pytest.fixture(scope="module")
def bare(hosts_pool: object) -> SimulatedHost:
    (host,) = hosts_pool.add(1, "supermicro-hgx-h100", condition="bare")  # type: ignore[attr-defined]
    assert isinstance(host, SimulatedHost)
    return host


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
