"""A real machine made ready for passthrough: GRUB, kernel, systemd and vfio-pci have the last word."""

from __future__ import annotations

from typing import Any

import pytest

from gpuclusters.boot import model as boot
from gpuclusters.boot.resource import HostBootProvider
from gpuclusters.vfio import decide as vfio
from gpuclusters.vfio.resource import VfioBindingProvider
from lab.machine.qemu import GPUS, OTHER_DISK
from tests.machine.conftest import RealMachine
from tests.providers.provider_process import ProviderProcess, StepFailed

PAGES = {0: 1, 1: 1}
FUNCTIONS = [{"address": gpu, "pci_id": "10de:2330", "pci_class": "0302"} for gpu in GPUS]


def boot_inputs(machine: RealMachine, **changes: Any) -> dict[str, Any]:
    arguments = boot.kernel_arguments(
        cpu=boot.Cpu.INTEL, huge_pages_1g_by_numa_node=PAGES, early_claim=["10de:2330"]
    )
    return {
        "connection": machine.connection,
        "kernel_arguments": list(arguments),
        "files": dict(boot.host_files()),
        "huge_pages_1g": {str(node): count for node, count in PAGES.items()},
        "reboot": "allow",
        "reboot_timeout_seconds": 900,
    } | changes


def vfio_inputs(machine: RealMachine, **changes: Any) -> dict[str, Any]:
    return {"connection": machine.connection, "functions": FUNCTIONS} | changes


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


def test_power_is_cut_and_the_devices_are_on_vfio_before_anybody_logs_in(
    machine: RealMachine, provider: ProviderProcess
) -> None:
    made = provider.create(VfioBindingProvider, vfio_inputs(machine))
    machine.cut_power()
    assert {drivers(machine)[gpu] for gpu in GPUS} == {"vfio-pci"}
    assert machine.run(f"systemctl is-active {vfio.UNIT}").stdout == "active\n"
    assert provider.read(VfioBindingProvider, made).outputs["drift"] == []
