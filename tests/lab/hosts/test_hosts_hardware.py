"""What a simulated machine says of its hardware and programs, in the form that is documented for it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lab.hosts import faults
from lab.hosts.hardware import hardware_faults
from tests.fixtures.hosts import SimulatedHost

GPU_2 = "/sys/bus/pci/devices/0000:b8:00.0"


@pytest.fixture(scope="module")
def host(hosts_pool: Any) -> SimulatedHost:
    (made,) = hosts_pool.add(1, "supermicro-hgx-h100")
    return made


def test_proc_says_what_the_simulated_machine_is(host: SimulatedHost) -> None:
    """proc(5): `MemTotal` in kB; cpuinfo has `flags` by processor."""
    total = host.run("awk '/^MemTotal:/ { print $2, $3 }' /proc/meminfo").stdout.split()
    assert total[1] == "kB"
    assert 1900 < int(total[0]) / 2**20 < 2048, "firmware and kernel keep some of 2 TiB"
    flags = host.run("grep -m 1 ^flags /proc/cpuinfo").stdout.split()
    assert {"vmx", "pdpe1gb"} <= set(flags)
    assert re.fullmatch(
        r"6\.\d+\.\d+-\d+-generic\n", host.run("cat /proc/sys/kernel/osrelease").stdout
    )


def test_numa_nodes_have_their_memory_as_in_sysfs(host: SimulatedHost) -> None:
    """sysfs-devices-node: `meminfo` of a node begins each line with `Node N`."""
    for node in (0, 1):
        text = host.run(f"cat /sys/devices/system/node/node{node}/meminfo").stdout
        assert re.search(rf"(?m)^Node {node} MemTotal: +\d+ kB$", text)


def test_the_firmware_hands_over_its_table_of_the_iommu(host: SimulatedHost) -> None:
    """sysfs-firmware-acpi: each table is a file in /sys/firmware/acpi/tables, named by its signature."""
    assert host.run("test -e /sys/firmware/acpi/tables/DMAR").returncode == 0
    assert host.run("test -e /sys/firmware/acpi/tables/IVRS").returncode == 1


def test_a_device_that_fell_off_the_bus_reads_as_ones_while_the_kernel_remembers_it(
    host: SimulatedHost,
) -> None:
    """PCI: nobody answers a read, it returns ones. `revision` and `vendor` are what the kernel kept."""
    before = host.run(f"od -An -v -tx1 -N16 {GPU_2}/config").stdout.split()
    host.inject(faults.GpuFellOffTheBus(module=2))
    fallen = host.run(f"od -An -v -tx1 -N16 {GPU_2}/config; cat {GPU_2}/vendor").stdout.split()
    assert fallen == ["ff"] * 16 + ["0x10de"]
    assert "(rev ff)" in host.run("lspci -s b8:00.0").stdout
    host.clear_faults()
    assert host.run(f"od -An -v -tx1 -N16 {GPU_2}/config").stdout.split() == before
    assert before[:4] == ["de", "10", "30", "23"]


def test_without_an_iommu_the_folder_of_groups_is_empty_or_gone(host: SimulatedHost) -> None:
    """sysfs-kernel-iommu_groups: a folder for each group, `devices` in it links to the functions."""
    members = "ls /sys/kernel/iommu_groups/14/devices"
    assert "0000:03:00.1" in host.run(members).stdout.split()
    host.inject(hardware_faults.IommuOff())
    assert host.run("ls /sys/kernel/iommu_groups 2>/dev/null").stdout == ""
    assert host.run(f"test -e {GPU_2}/iommu_group").returncode == 1
    host.clear_faults()
    assert "0000:03:00.1" in host.run(members).stdout.split()


def test_gpus_without_acs_share_a_group_from_both_sides(host: SimulatedHost) -> None:
    """vfio.rst: `iommu_group` of a function is a link to its group."""
    host.inject(hardware_faults.AcsMissing(modules=(5, 7)))
    links = host.run(
        "readlink /sys/bus/pci/devices/0000:0f:00.0/iommu_group "
        "/sys/bus/pci/devices/0000:10:00.0/iommu_group"
    ).stdout.split()
    assert len({link.rsplit("/", 1)[1] for link in links}) == 1
    host.clear_faults()


def test_df_prints_the_portable_form(host: SimulatedHost) -> None:
    """POSIX df: with -P a header with `Capacity`, and one line for each file system."""
    header, line = host.run("df -Pk /").stdout.splitlines()
    assert header.split() == [
        "Filesystem",
        "1024-blocks",
        "Used",
        "Available",
        "Capacity",
        "Mounted",
        "on",
    ]
    name, blocks, used, free, capacity, mounted = line.split()
    assert int(blocks) == int(used) + int(free)
    assert (name[:5], capacity[-1], mounted) == ("/dev/", "%", "/")
    assert "No such file or directory" in host.run("df -P /nowhere").stderr


def test_dpkg_query_shows_what_is_installed_by_pattern(host: SimulatedHost) -> None:
    """dpkg-query(1): patterns; `db:Status-Abbrev` is `ii ` for what is installed; 1 if nothing fits."""
    form = "${db:Status-Abbrev}\\t${Package}\\t${Version}\\n"
    done = host.run(f"dpkg-query --show --showformat='{form}' 'qemu-*'")
    assert done.returncode == 0
    assert "ii \tqemu-system-x86\t1:10.1.0+ds-5ubuntu2\n" in done.stdout
    missing = host.run("dpkg-query -W 'nvidia-driver-*'")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == "dpkg-query: no packages found matching nvidia-driver-*\n"
    host.inject(hardware_faults.HostDriver(how="installed"))
    assert "nvidia-driver-570\t" in host.run("dpkg-query -W 'nvidia-driver-*'").stdout
    host.clear_faults()


def test_qemu_says_its_version_and_runs_nothing(host: SimulatedHost) -> None:
    """qemu(1): the first line of --version is `QEMU emulator version …`."""
    said = host.run("qemu-system-x86_64 --version").stdout.splitlines()[0]
    assert re.match(r"QEMU emulator version 10\.1\.0 ", said)
    assert host.run("qemu-system-x86_64 -m 1G").returncode == 1
