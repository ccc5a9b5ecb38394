"""The firmware inventory of an HGX board as its management controller reports it.

Item names and the form of versions: NVIDIA's nvfwupd guide for DGX H100. Names differ between BMC
releases, which is why nobody should match them exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

from lab.hosts.faults import Faults, FirmwareChanged
from lab.hosts.folder import HostFolder
from lab.hosts.hardware import gpus
from lab.hosts.hardware.board import Board

_ROOT_OF_TRUST = "00.02.0192.0000_n00"
_GPU_VERSION = "96.00.BC.00.01"
_SINGLE = {
    "HGX_FW_BMC_0": "HGX-22.10-1-rc75",
    "HGX_FW_CPLD_0": "0.22",
    "HGX_FW_ERoT_BMC_0": _ROOT_OF_TRUST,
    "HGX_FW_ERoT_FPGA_0": _ROOT_OF_TRUST,
    "HGX_FW_ERoT_PCIeSwitch_0": _ROOT_OF_TRUST,
    "HGX_FW_FPGA_0": "2.53",
    "HGX_FW_PCIeSwitch_0": "1.9.5F",
}
_PER_GPU = {
    "HGX_FW_GPU_SXM_{}": _GPU_VERSION,
    "HGX_FW_ERoT_GPU_SXM_{}": _ROOT_OF_TRUST,
    "HGX_InfoROM_GPU_SXM_{}": "G520.0200.00.05",
}
_PER_SWITCH = {
    "HGX_FW_NVSwitch_{}": "96.10.69.00.01",
    "HGX_FW_ERoT_NVSwitch_{}": _ROOT_OF_TRUST,
    "HGX_InfoROM_NVSwitch_{}": "5612.0002.00.01",
}
_SWITCHES = 4

GOLDEN: Mapping[str, tuple[str, ...]] = {
    "HGX_FW_BMC_0": ("HGX-22.10-1-rc75",),
    "HGX_FW_CPLD_": ("0.22",),
    "HGX_FW_ERoT_": (_ROOT_OF_TRUST,),
    "HGX_FW_GPU_": (_GPU_VERSION,),
    "HGX_FW_NVSwitch_": ("96.10.69.00.01",),
    "HGX_InfoROM_GPU_": ("G520.0200.00.05",),
}
"""Versions that a simulated board comes with, by prefix: the golden set of a lab."""


def inventory(host: HostFolder, board: Board, faults: Faults) -> dict[str, str]:
    """Version by item, as it is at this moment."""
    items = dict(_SINGLE)
    for number in range(_SWITCHES):
        items |= {name.format(number): version for name, version in _PER_SWITCH.items()}
    changed = gpus.read(host)
    for module in board.gpus:
        items |= {name.format(module): version for name, version in _PER_GPU.items()}
        tampered = changed[module].firmware if module in changed else None
        fault = faults.of_gpu(FirmwareChanged, module)
        version = fault.version if fault else tampered or _GPU_VERSION
        items[f"HGX_FW_GPU_SXM_{module}"] = version
    return dict(sorted(items.items()))
