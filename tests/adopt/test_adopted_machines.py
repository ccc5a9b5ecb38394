"""Machines that somebody else prepared: taken over as they are, or refused and left alone."""

from __future__ import annotations

import pytest

from gpuclusters.boot.resource import HostBootProvider
from gpuclusters.driver.resource import GpuDriverProvider
from gpuclusters.vfio.resource import VfioBindingProvider
from tests.fixtures.hosts import Hosts
from tests.providers import test_gpu_driver as drivers
from tests.providers import test_prepared_hosts as prepared
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import StepFailed


def test_a_driver_is_taken_over_without_a_restart_and_another_one_is_left_alone(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    (host,) = hosts(1, platform="plain-gpu-a100")
    provider = start_provider(host)
    host.forget()
    other = drivers.inputs(host, version=drivers.NEW, adopt=True)
    with pytest.raises(StepFailed) as refused:
        provider.create(GpuDriverProvider, other)
    assert str(refused.value).startswith(
        f"adopt GpuDriver {host.name}/driver: what is there differs"
    )
    assert f"the kernel runs driver {drivers.OLD}" in str(refused.value)
    assert host.journal("packages") == []

    made = provider.create(GpuDriverProvider, drivers.inputs(host, adopt=True))
    assert (made.outputs["driver_version"], drivers.restarts(host)) == (drivers.OLD, 0)
    # It counts once: without it nothing changes.
    assert not provider.diff(GpuDriverProvider, made.outputs, drivers.inputs(host)).changes


def test_a_machine_whose_gpus_are_not_passed_through_is_not_taken_over(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    bare, ready = *hosts(1, condition="bare"), *hosts(1)
    provider = start_provider(bare)
    bare.forget()
    with pytest.raises(StepFailed, match=f"{prepared.GPU} is in use on driver nouveau"):
        provider.create(VfioBindingProvider, prepared.vfio_inputs(bare, adopt=True))
    with pytest.raises(StepFailed, match="the running kernel lacks intel_iommu=on"):
        provider.create(HostBootProvider, prepared.boot_inputs(bare, adopt=True))
    assert not bare.path("/etc/gpu-clusters").exists()
    assert bare.boots() == 0

    ready.sudo("rm -r /etc/gpu-clusters")  # bound by other means
    made = provider.create(VfioBindingProvider, prepared.vfio_inputs(ready, adopt=True))
    assert made.outputs["drift"] == []
