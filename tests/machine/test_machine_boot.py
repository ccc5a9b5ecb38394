"""A real machine made ready for passthrough: GRUB, kernel, systemd and vfio-pci have the last word."""

from __future__ import annotations

import pytest

from gpuclusters.boot.resource import HostBootProvider
from gpuclusters.vfio import decide as vfio
from gpuclusters.vfio.resource import VfioBindingProvider
from lab.machine.qemu import GPUS, OTHER_DISK
from tests.machine.conftest import RealMachine
from tests.machine.inputs import FUNCTIONS, boot_inputs, vfio_inputs
from tests.providers.provider_process import ProviderProcess, StepFailed


def drivers(machine: RealMachine) -> dict[str, str]:
    said = machine.run(
        "for d in /sys/bus/pci/devices/*; do echo ${d##*/} $(basename $(readlink $d/driver)); done"
    )
    return dict(line.partition(" ")[::2] for line in said.stdout.splitlines())


def test_a_reboot_that_is_refused_is_set_for_the_next_boot(
    machine: RealMachine, provider: ProviderProcess
) -> None:
    with pytest.raises(StepFailed, match="the running kernel lacks intel_iommu=on"):
        provider.create(HostBootProvider, boot_inputs(machine, reboot="refuse"))
    (line,) = {
        line.split(maxsplit=2)[2]
        for line in machine.sudo("cat /boot/grub/grub.cfg").splitlines()
        if line.split()[:1] == ["linux"] and "single" not in line
    }
    assert "iommu=pt" in line.split()
    assert "iommu=pt" not in machine.run("cat /proc/cmdline").stdout


def test_it_boots_what_was_written_and_all_of_it_is_in_effect(
    machine: RealMachine, provider: ProviderProcess
) -> None:
    before = machine.boot_id()
    inputs = boot_inputs(machine)
    made = provider.create(HostBootProvider, inputs)
    assert made.outputs["drift"] == []
    assert machine.boot_id() == made.outputs["boot_id"] != before
    line = machine.run("cat /proc/cmdline").stdout.split()
    assert set(inputs["kernel_arguments"]) <= set(line)
    assert "console=ttyS0,115200n8" in line, "what others have set is kept"
    pages = machine.run("cat /sys/devices/system/node/node*/hugepages/hugepages-1048576kB/nr_*es")
    assert pages.stdout.split() == ["1", "1"]
    assert machine.run("cat /proc/sys/fs/inotify/max_user_instances").stdout == "8192\n"
    assert machine.run("systemctl show -P LimitMEMLOCK libvirtd").stdout == "infinity\n"
    assert machine.sudo("cat /sys/module/vfio_pci/parameters/disable_idle_d3") == "Y\n"
    assert machine.run("sudo modprobe nouveau; sudo modprobe nvidia").returncode != 0
    assert provider.create(HostBootProvider, inputs) == made, "again: nothing to do"


def test_eight_devices_are_on_vfio_and_a_disk_is_not(
    machine: RealMachine, provider: ProviderProcess
) -> None:
    wrong = [FUNCTIONS[0], {"address": OTHER_DISK, "pci_id": "10de:2330", "pci_class": "0302"}]
    with pytest.raises(StepFailed, match=f"{OTHER_DISK} is 1af4:1001, not 10de:2330"):
        provider.create(VfioBindingProvider, vfio_inputs(machine, functions=wrong))
    made = provider.create(VfioBindingProvider, vfio_inputs(machine))
    bound = drivers(machine)
    assert {bound[gpu] for gpu in GPUS} == {"vfio-pci"}
    assert bound[OTHER_DISK] == "virtio-pci"
    groups = made.outputs["iommu_groups"]
    assert {f"/dev/vfio/{group}" for group in groups.values()} <= set(
        machine.run("ls -d /dev/vfio/*").stdout.split()
    )
    assert provider.create(VfioBindingProvider, vfio_inputs(machine)) == made


def test_a_device_that_a_process_holds_is_not_given_back(
    machine: RealMachine, provider: ProviderProcess
) -> None:
    made = provider.create(VfioBindingProvider, vfio_inputs(machine))
    group = made.outputs["iommu_groups"][GPUS[0]]
    holder = machine.sudo(
        f"exec 3<>/dev/vfio/{group}; nohup sleep 3600 >/dev/null 2>&1 & echo $!"
    ).strip()
    with pytest.raises(StepFailed, match=rf"{GPUS[0]} is in use \(pid:{holder}\)"):
        provider.delete(VfioBindingProvider, made)
    assert drivers(machine)[GPUS[0]] == "vfio-pci"
    other = boot_inputs(machine)
    other["kernel_arguments"].append("pci=realloc")
    with pytest.raises(StepFailed, match=f"processes {holder} use passed-through devices"):
        provider.create(HostBootProvider, other)
    machine.sudo(f"kill {holder}")


def test_power_is_cut_and_the_devices_are_on_vfio_before_anybody_logs_in(
    machine: RealMachine, provider: ProviderProcess
) -> None:
    made = provider.create(VfioBindingProvider, vfio_inputs(machine))
    machine.cut_power()
    assert {drivers(machine)[gpu] for gpu in GPUS} == {"vfio-pci"}
    assert machine.run(f"systemctl is-active {vfio.UNIT}").stdout == "active\n"
    assert provider.read(VfioBindingProvider, made).outputs["drift"] == []


def test_what_is_removed_leaves_nothing_and_the_next_boot_is_as_before(
    machine: RealMachine, provider: ProviderProcess
) -> None:
    held = provider.create(VfioBindingProvider, vfio_inputs(machine))
    provider.delete(VfioBindingProvider, held)
    assert {drivers(machine)[gpu] for gpu in GPUS} == {""}
    made = provider.create(HostBootProvider, boot_inputs(machine))
    provider.delete(HostBootProvider, made)
    left = "grep -rl 'Written by gpu-clusters' /etc /usr/local /var/lib || true"
    assert machine.sudo(left) == ""
    assert "iommu" not in machine.sudo("cat /boot/grub/grub.cfg")
