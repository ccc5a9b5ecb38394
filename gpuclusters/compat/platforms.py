"""What is known of a machine before anybody logs in: board, PCI functions, memory.

A preset is a default, never a proof: which GPU sits in which module is read from the board itself before
a VM gets it (`nvidia_gpu_tools.py --query-module-name`), because a mistake here hands one tenant
another tenant's GPU. Where no source names the addresses, a preset has none and the nodes must.

Sources: WP-12736-002 (on HGX H100 modules 1 to 8 are entries 4, 6, 5, 7, 0, 2, 1, 3 of `lspci`); Fabric
Manager User Guide; `lspci` of DGX H100 and of Supermicro's HGX H100; DGX user guides (memory).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from gpuclusters.fabric.table import Baseboard


class Platform(StrEnum):
    """A machine type with a preset."""

    SUPERMICRO_HGX_H100 = "supermicro-hgx-h100"
    DGX_H100 = "dgx-h100"
    DGX_H200 = "dgx-h200"
    HGX_H200 = "hgx-h200"
    HGX_B200 = "hgx-b200"
    HGX_A100 = "hgx-a100"


class SwitchAccess(StrEnum):
    """Through which PCI functions the fabric manager reaches the NVSwitches."""

    NVSWITCH = "nvswitch"
    """Each switch is a PCI function of its own (10de:22a3, on A100 10de:1af1)."""
    CONNECTX_BRIDGE = "connectx-bridge"
    """The switches have none; four ConnectX-7 functions whose VPD says SW_MNG manage them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """The facts of one platform. Sizes are in GiB, PCI ids are `vendor:device`."""

    baseboard: Baseboard
    gpu_model: str
    gpu_pci_id: str
    gpu_bar_gib: int
    """Memory window of one GPU (BAR2); the VM's firmware has to place it above 4 GiB."""
    switch_access: SwitchAccess
    fabric_functions: int
    """How many functions the service VM needs to reach all switches: the switches, or their bridges."""
    switch_pci_id: str | None = "10de:22a3"
    """None where the switches are no PCI functions."""
    extra_functions: tuple[str, ...] = ()
    """Functions that share the switches' IOMMU group, so that they must go to the same VM."""
    extra_pci_id: str | None = None
    gpus: Mapping[int, str] = field(default_factory=dict)
    """PCI address by module number; empty where no source names them."""
    switches: tuple[str, ...] = ()
    memory_gib: int | None = None
    numa_nodes: int = 2


def _modules(*buses: str) -> Mapping[int, str]:
    """PCI buses in the order of modules 1 to 8."""
    return MappingProxyType({n: f"0000:{bus}:00.0" for n, bus in enumerate(buses, start=1)})


def _functions(*buses: str) -> tuple[str, ...]:
    return tuple(f"0000:{bus}:00.0" for bus in buses)


_DGX_GPUS = _modules("1b", "43", "52", "61", "9d", "c3", "d1", "df")
_DGX_SWITCHES = _functions("07", "08", "09", "0a")

PRESETS: Mapping[Platform, Preset] = {
    Platform.SUPERMICRO_HGX_H100: Preset(
        baseboard=Baseboard.HGX_H100,
        gpu_model="NVIDIA H100 80GB HBM3",
        gpu_pci_id="10de:2330",
        gpu_bar_gib=128,
        switch_access=SwitchAccess.NVSWITCH,
        fabric_functions=4,
        extra_functions=("0000:03:00.1",),
        extra_pci_id="11f8:4128",
        gpus=_modules("86", "b8", "87", "bb", "0f", "41", "10", "44"),
        switches=_functions("05", "06", "07", "08"),
        memory_gib=2048,
    ),
    Platform.DGX_H100: Preset(
        baseboard=Baseboard.HGX_H100,
        gpu_model="NVIDIA H100 80GB HBM3",
        gpu_pci_id="10de:2330",
        gpu_bar_gib=128,
        switch_access=SwitchAccess.NVSWITCH,
        fabric_functions=4,
        gpus=_DGX_GPUS,
        switches=_DGX_SWITCHES,
        memory_gib=2048,
    ),
    Platform.DGX_H200: Preset(
        baseboard=Baseboard.HGX_H200,
        gpu_model="NVIDIA H200",
        gpu_pci_id="10de:2335",
        gpu_bar_gib=256,
        switch_access=SwitchAccess.NVSWITCH,
        fabric_functions=4,
        gpus=_DGX_GPUS,
        switches=_DGX_SWITCHES,
        memory_gib=2048,
    ),
    Platform.HGX_H200: Preset(
        baseboard=Baseboard.HGX_H200,
        gpu_model="NVIDIA H200",
        gpu_pci_id="10de:2335",
        gpu_bar_gib=256,
        switch_access=SwitchAccess.NVSWITCH,
        fabric_functions=4,
    ),
    Platform.HGX_B200: Preset(
        baseboard=Baseboard.HGX_B200,
        gpu_model="NVIDIA B200",
        gpu_pci_id="10de:2901",
        gpu_bar_gib=256,
        switch_access=SwitchAccess.CONNECTX_BRIDGE,
        fabric_functions=4,
        switch_pci_id=None,
        extra_pci_id="15b3:1021",  # ConnectX-7, which manages the switches
    ),
    # Never run by us: neither its partition numbers nor its addresses are in a readable source, and its
    # GPUs do not say in which module they sit. Configuration has to state all three.
    Platform.HGX_A100: Preset(
        baseboard=Baseboard.HGX_A100,
        gpu_model="NVIDIA A100-SXM4-80GB",
        gpu_pci_id="10de:20b2",
        gpu_bar_gib=128,
        switch_access=SwitchAccess.NVSWITCH,
        fabric_functions=6,
        switch_pci_id="10de:1af1",
    ),
}
