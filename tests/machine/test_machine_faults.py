"""A machine that loses power or connections in the middle of its preparation: the next run carries on."""

from __future__ import annotations

from gpuclusters.boot.resource import HostBootProvider
from gpuclusters.vfio.resource import VfioBindingProvider
from tests.machine import losses
from tests.machine.conftest import RealMachine
from tests.machine.inputs import boot_inputs, vfio_inputs
from tests.providers.provider_process import ProviderProcess


def test_a_preparation_goes_on_after_a_loss_at_each_step(
    machine: RealMachine, provider: ProviderProcess
) -> None:
    inputs = boot_inputs(machine)
    lost: list[losses.Loss] = [
        ("mv", "gpu-clusters", losses.connections),
        ("mv", "gpu-clusters", losses.power),
        ("update-grub", "", losses.power),
        ("update-initramfs", "", losses.power),
    ]
    made = losses.create(machine, provider, HostBootProvider, inputs, lost)
    assert set(inputs["kernel_arguments"]) <= set(machine.run("cat /proc/cmdline").stdout.split())
    lost = [
        ("mv", "gpu-clusters", losses.connections),
        ("mv", "gpu-clusters", losses.power),
        ("systemctl", "restart", losses.power),
    ]
    bound = losses.create(machine, provider, VfioBindingProvider, vfio_inputs(machine), lost)
    provider.delete(VfioBindingProvider, bound)
    provider.delete(HostBootProvider, made)
    assert machine.sudo("find /etc /usr/local /var/lib -xdev -name '.*gpu-clusters*'") == ""
