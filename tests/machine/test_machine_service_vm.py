"""The service VM on a real machine: libvirt, QEMU and systemd have the last word."""

from __future__ import annotations

import pytest

from gpuclusters.service_vm import decide
from gpuclusters.service_vm.resource import ServiceVmProvider
from gpuclusters.vfio.resource import VfioBindingProvider
from lab.machine.qemu import GPUS
from tests.machine import losses
from tests.machine.conftest import RealMachine
from tests.machine.inputs import service_vm_inputs, vfio_inputs
from tests.providers.provider_process import ProviderProcess, StepFailed


def test_libvirt_starts_the_service_vm_after_a_loss_at_each_step_and_keeps_it_as_declared(
    machine: RealMachine, provider: ProviderProcess
) -> None:
    machine.sudo("systemctl enable --now libvirtd")  # as packages do; other files do without it
    held = provider.create(VfioBindingProvider, vfio_inputs(machine))
    lost: list[losses.Loss] = [
        ("genisoimage", "", losses.connections),
        ("qemu-img", "create", losses.power),
        ("virsh", "define", losses.connections),
        ("virsh", "start", losses.power),
    ]
    inputs = service_vm_inputs(machine)
    made = losses.create(machine, provider, ServiceVmProvider, inputs, lost)
    assert made.outputs["state"] == "waiting-for-list"
    assert made.outputs["fabric_manager_version"] == "595.58.03", "the guest's console says so"
    assert provider.read(ServiceVmProvider, made).outputs["drift"] == []
    assert machine.run("ip -br addr show br-fm").stdout.split()[2] == "192.168.250.1/30"
    verified = machine.run(f"systemd-analyze verify {' '.join(decide.UNITS)}", as_root=True)
    assert (verified.returncode, verified.stderr) == (0, "")
    qemu = machine.sudo("pgrep qemu-system").strip()
    with pytest.raises(StepFailed, match=rf"{GPUS[0]} is in use \(pid:{qemu}\)"):
        provider.delete(VfioBindingProvider, held)

    machine.cut_power()
    machine.sudo(
        "systemctl is-active --wait gpu-clusters-service-vm || systemctl start gpu-clusters-service-vm"
    )
    after = provider.read(ServiceVmProvider, made).outputs
    assert (after["drift"], after["state"]) == ([], "waiting-for-list")
    assert after["run"] != made.outputs["run"]

    group = held.outputs["iommu_groups"][GPUS[4]]
    holder = machine.sudo(
        f"exec 3<>/dev/vfio/{group}; nohup sleep 3600 >/dev/null 2>&1 & echo $!"
    ).strip()
    with pytest.raises(StepFailed, match=rf"GPU 1 \({GPUS[4]}\) by process {holder}"):
        provider.delete(ServiceVmProvider, made)
    machine.sudo(f"kill {holder}")
    provider.delete(ServiceVmProvider, made)
    assert machine.sudo("virsh list --all --name; virsh net-list --all --name").split() in (
        [],
        ["default"],
    )
    left = "find /etc/gpu-clusters/service-vm /var/lib/libvirt/images/gpu-clusters -type f"
    verified = f"/etc/gpu-clusters/service-vm/images/{inputs['image']['sha256']}"
    assert machine.sudo(left).split() == [verified], "the image stays, and that it was looked at"
