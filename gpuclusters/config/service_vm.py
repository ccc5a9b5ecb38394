"""What the configuration says of the service VM, as inputs of its resource: the same for every machine."""

from __future__ import annotations

from typing import Any

from gpuclusters.config.caas import CaasConfig
from gpuclusters.service_vm.model import LAB_IMAGE


def settings(config: CaasConfig) -> dict[str, Any]:
    """Inputs of `ServiceVm` beside the host and its PCI functions."""
    vm = config.service_vm
    image = vm.image.model_dump(exclude_none=True) if vm.image is not None else dict(LAB_IMAGE)
    fabric_manager: dict[str, Any] = {
        "version": config.versions.fabric_manager,
        "bind_address": str(vm.bind_address),
        "port": vm.port,
        "internal_port": vm.internal_port,
        "mode": int(vm.fabric_mode),
        "restart": vm.fabric_mode_restart,
        "state_file": vm.state_file,
        "stay_resident_on_failures": vm.stay_resident_on_failures,
        "access_link_failure_mode": vm.access_link_failure_mode,
        "trunk_link_failure_mode": vm.trunk_link_failure_mode,
        "nvswitch_failure_mode": vm.nvswitch_failure_mode,
        "daemonize": vm.daemonize,
    }
    if vm.partition_rail_policy is not None:
        fabric_manager["partition_rail_policy"] = vm.partition_rail_policy
    found: dict[str, Any] = {
        "name": vm.name,
        "image": image,
        "fabric_manager": fabric_manager,
        "vcpus": vm.vcpus,
        "memory_mib": vm.memory_mib,
        "disk_gib": vm.disk_gib,
        "network": {
            "name": vm.network.name,
            "bridge": vm.network.bridge,
            "host_address": str(vm.network.host_address),
            "prefix_length": vm.network.prefix_length,
        },
        "firmware": vm.firmware.model_dump(),
        "boot_timeout_seconds": vm.boot_timeout_seconds,
        "adopt": vm.adopt,
    }
    if vm.packages is not None:
        found["packages"] = {
            "source": vm.packages.repository,
            "key": vm.packages.key,
            "proxy": vm.packages.proxy,
            "packages": dict(vm.packages.packages),
        }
    return found
