"""A real machine made ready for passthrough: GRUB, kernel, systemd and vfio-pci have the last word."""

from __future__ import annotations

import time

import pytest

from gpuclusters.boot.resource import HostBootProvider
from gpuclusters.preflight.host import read_facts
from gpuclusters.vfio import decide as vfio
from gpuclusters.vfio.resource import VfioBindingProvider
from lab.machine.qemu import GPUS, OTHER_DISK
from tests.machine import losses
from tests.machine.conftest import RealMachine
from tests.machine.inputs import FUNCTIONS, boot_inputs, vfio_inputs
from tests.providers.provider_process import ProviderProcess, StepFailed


def drivers(machine: RealMachine) -> dict[str, str]:
    said = machine.run(
        "for d in /sys/bus/pci/devices/*; do echo ${d##*/} $(basename $(readlink $d/driver)); done"
    )
    return dict(line.partition(" ")[::2] for line in said.stdout.splitlines())


def next_boot(machine: RealMachine) -> set[str]:
    """What GRUB gives the kernel at the next boot."""
    (line,) = {
        line.split(maxsplit=2)[2]
        for line in machine.sudo("cat /boot/grub/grub.cfg").splitlines()
        if line.split()[:1] == ["linux"] and "single" not in line
    }
    return set(line.split())


def test_it_boots_what_was_written_after_losses_and_all_of_it_is_in_effect(
    machine: RealMachine, provider: ProviderProcess
) -> None:
    inputs = boot_inputs(machine)
    lost = [
        ("mv", "gpu-clusters", losses.connections),
        ("mv", "gpu-clusters", losses.power),
        ("update-grub", "", losses.power),
        ("update-initramfs", "", losses.power),
    ]
    made = losses.create(machine, provider, HostBootProvider, inputs, lost)
    assert machine.boot_id() == made.outputs["boot_id"]
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


def test_eight_devices_are_on_vfio_after_losses_and_a_disk_is_not(
    machine: RealMachine, provider: ProviderProcess
) -> None:
    wrong = [FUNCTIONS[0], {"address": OTHER_DISK, "pci_id": "10de:2330", "pci_class": "0302"}]
    with pytest.raises(StepFailed, match=f"{OTHER_DISK} is 1af4:1001, not 10de:2330"):
        provider.create(VfioBindingProvider, vfio_inputs(machine, functions=wrong))
    lost = [
        ("mv", "gpu-clusters", losses.connections),
        ("mv", "gpu-clusters", losses.power),
        ("systemctl", "restart", losses.power),
    ]
    made = losses.create(machine, provider, VfioBindingProvider, vfio_inputs(machine), lost)
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


def test_a_full_disk_is_named_and_nothing_is_cut_short(
    machine: RealMachine, provider: ProviderProcess
) -> None:
    made = provider.create(VfioBindingProvider, vfio_inputs(machine))
    before = machine.sudo("cat /etc/gpu-clusters/vfio-functions")
    fewer = vfio_inputs(machine, functions=FUNCTIONS[:4])
    machine.sudo(
        "fallocate -l $(stat -f -c '%f*%S' / | xargs -I@ sh -c 'echo $((@))') /srv/full || true"
    )
    machine.sudo("cat /dev/zero >/srv/rest || true")
    with pytest.raises(StepFailed, match="No space left on device"):
        provider.update(VfioBindingProvider, made, fewer)
    assert machine.sudo("cat /etc/gpu-clusters/vfio-functions") == before
    machine.sudo("rm /srv/full /srv/rest")
    made = provider.update(VfioBindingProvider, made, fewer)
    assert provider.read(VfioBindingProvider, made).outputs["drift"] == []


def test_after_a_root_that_became_read_only_and_a_power_cut_the_devices_are_on_vfio(
    machine: RealMachine, provider: ProviderProcess
) -> None:
    made = provider.create(VfioBindingProvider, vfio_inputs(machine))
    machine.sudo("sync; echo u >/proc/sysrq-trigger")
    while machine.run("touch /var/tmp/lab").returncode == 0:
        time.sleep(1)
    with pytest.raises(StepFailed, match="Read-only file system"):
        provider.update(VfioBindingProvider, made, vfio_inputs(machine, functions=FUNCTIONS[:4]))
    machine.cut_power()
    assert {drivers(machine)[gpu] for gpu in GPUS} == {"vfio-pci"}, "before anybody logged in"
    assert machine.run(f"systemctl is-active {vfio.UNIT}").stdout == "active\n"
    assert provider.read(VfioBindingProvider, made).outputs["drift"] == []


def test_a_clock_that_is_a_day_off_is_said_and_spoils_nothing(
    machine: RealMachine, provider: ProviderProcess
) -> None:
    made = provider.create(HostBootProvider, boot_inputs(machine))
    inputs = boot_inputs(machine, reboot="refuse")
    inputs["kernel_arguments"] += ["lab=1"]
    for days in (1, -1):
        machine.sudo(f"date -s @{time.time() + days * 86_400:.0f}")
        off = read_facts(machine.ssh, GPUS[:1]).clock_offset_seconds
        assert off == pytest.approx(days * 86_400, abs=30)
        with pytest.raises(StepFailed, match="lab=1"):
            provider.update(HostBootProvider, made, inputs)
        assert next_boot(machine) >= {"iommu=pt", "lab=1"}, (
            "a reboot that is refused is left to others"
        )
    machine.sudo(f"date -s @{time.time():.0f}")
    made = provider.update(HostBootProvider, made, boot_inputs(machine))
    assert provider.read(HostBootProvider, made).outputs["drift"] == []
    assert "lab=1" not in next_boot(machine)


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
