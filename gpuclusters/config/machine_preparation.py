"""What the configuration says of a machine's preparation, as inputs of its resources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuclusters.boot.model import RebootPolicy, host_files, kernel_arguments
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.nodes import Node
from gpuclusters.config.plan import board, preset
from gpuclusters.config.preparation import PACKAGES
from gpuclusters.vfio.model import NVSWITCH_PCI_ID, VfioFunction, board_functions


@dataclass(frozen=True, slots=True)
class MachinePreparation:
    """What one machine must boot with, and what belongs to vfio-pci."""

    kernel_arguments: tuple[str, ...]
    files: Mapping[str, str]
    functions: tuple[VfioFunction, ...]
    huge_pages_1g: Mapping[int, int]
    packages: Mapping[str, str | None]
    may_reboot: bool
    reboot_timeout_seconds: int


def machine_preparation(config: CaasConfig, node: Node) -> MachinePreparation:
    """What one machine is told: the cluster's words, with its own addresses and huge pages."""
    said, known, its = config.preparation, preset(config), board(config, node)
    functions = board_functions(
        gpus=its.gpus,
        gpu_pci_id=known.gpu_pci_id,
        switches=its.switches,
        switch_pci_id=known.switch_pci_id or NVSWITCH_PCI_ID,
        extra_functions=its.extra_functions,
        extra_pci_id=known.extra_pci_id,
    )
    pages = dict(enumerate(node.hugepages_gib_per_numa_node or ()))
    return MachinePreparation(
        kernel_arguments=kernel_arguments(
            cpu=said.cpu,
            huge_pages_1g_by_numa_node=pages,
            early_claim=[f.pci_id for f in functions] if said.early_claim else (),
            extra=said.extra_kernel_arguments,
        ),
        files=host_files(
            disable_idle_d3=said.disable_idle_d3,
            dma_entry_limit=said.dma_entry_limit,
            inotify_instances=said.inotify_instances,
            inotify_watches=said.inotify_watches,
        ),
        functions=functions,
        huge_pages_1g=pages,
        packages=dict.fromkeys(PACKAGES) | dict(said.package_versions),
        may_reboot=said.reboot is RebootPolicy.ALLOW,
        reboot_timeout_seconds=said.reboot_timeout_seconds,
    )
