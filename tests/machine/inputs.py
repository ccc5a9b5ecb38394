"""What the tests declare for a real machine, as inputs of the providers."""

from __future__ import annotations

from typing import Any

from gpuclusters.boot import model as boot
from lab.machine.qemu import GPUS
from tests.machine.conftest import RealMachine

H100, CLASS = "10de:2330", "0302"
PAGES = {0: 1, 1: 1}
FUNCTIONS = [{"address": gpu, "pci_id": H100, "pci_class": CLASS} for gpu in GPUS]
IMAGE = "/srv/guest.img"
"""A small guest, made by `lab/machine/set_up.sh`."""


def boot_inputs(machine: RealMachine, **changes: Any) -> dict[str, Any]:
    """IOMMU and a huge page for each NUMA node."""
    arguments = boot.kernel_arguments(
        cpu=boot.Cpu.INTEL, huge_pages_1g_by_numa_node=PAGES, early_claim=[H100]
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
    """All GPUs for vfio-pci."""
    return {"connection": machine.connection, "functions": FUNCTIONS} | changes


def service_vm_inputs(machine: RealMachine) -> dict[str, Any]:
    """The small guest in place of NVIDIA's image, and an fmpm that says that it waits for its list."""
    waits = "#!/bin/sh\\nexit 248\\n"
    machine.sudo(f"printf '{waits}' >/usr/local/bin/fmpm; chmod +x /usr/local/bin/fmpm")
    digest = machine.run(f"sha256sum <{IMAGE}").stdout
    return {
        "connection": machine.connection,
        "switches": GPUS[:4],
        "gpus": {"1": GPUS[4]},
        "memory_mib": 1024,
        "image": {"path": IMAGE, "sha256": digest.split()[0]},
        "fabric_manager": {"version": "595.58.03"},
        "shutdown_timeout_seconds": 1,
    }
