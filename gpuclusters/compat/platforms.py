"""What is known of a machine before anybody logs in: board, PCI functions, memory (`data/platforms.yaml`).

A default, never a proof: which GPU sits in which module is read from the board itself before a VM gets it,
because a mistake here hands one tenant another tenant's GPU.
"""

from collections.abc import Mapping
from enum import StrEnum

from gpuclusters.compat.dated_table import Row, Table
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


class Preset(Row):
    """The facts of one platform. Sizes are in GiB, PCI ids are `vendor:device`."""

    baseboard: Baseboard
    gpu_model: str
    gpu_pci_id: str
    gpu_bars_mib: Mapping[int, int] = {}
    """Size of each memory window of a GPU by number of its BAR, as far as it is published."""
    switch_access: SwitchAccess = SwitchAccess.NVSWITCH
    fabric_functions: int
    switch_pci_id: str | None = "10de:22a3"
    """None where the switches are no PCI functions."""
    extra_functions: tuple[str, ...] = ()
    extra_pci_id: str | None = None
    gpu_buses: tuple[str, ...] = ()
    switch_buses: tuple[str, ...] = ()
    memory_gib: int | None = None
    numa_nodes: int = 2

    @property
    def gpus(self) -> Mapping[int, str]:
        """PCI address by module number; empty where no source names them."""
        return {n: f"0000:{bus}:00.0" for n, bus in enumerate(self.gpu_buses, start=1)}

    @property
    def switches(self) -> tuple[str, ...]:
        return tuple(f"0000:{bus}:00.0" for bus in self.switch_buses)


class _Platforms(Table):
    platforms: Mapping[Platform, Preset]


PRESETS = _Platforms.packaged("platforms").platforms
