"""The firmware inventory of an HGX board as its management controller reports it.

Item names and the form of versions: NVIDIA's nvfwupd guide for DGX H100. Names differ between BMC
releases, which is why nobody should match them exactly.
"""

from collections.abc import Mapping
from pathlib import Path

import yaml

from lab.hosts.faults import Faults, FirmwareChanged
from lab.hosts.folder import HostFolder
from lab.hosts.hardware import gpus
from lab.hosts.hardware.board import Board

_BOARD = yaml.safe_load(Path(__file__).with_name("firmware.yaml").read_text())
_SWITCHES = 4
GOLDEN: Mapping[str, tuple[str, ...]] = {
    prefix: tuple(versions) for prefix, versions in _BOARD["golden"].items()
}
"""Versions that a simulated board comes with, by prefix: the golden set of a lab."""


def inventory(host: HostFolder, board: Board, faults: Faults) -> dict[str, str]:
    """Version by item, as it is at this moment."""
    items: dict[str, str] = dict(_BOARD["single"])
    for number in range(_SWITCHES):
        items |= {name.format(number): version for name, version in _BOARD["switch"].items()}
    changed = gpus.read(host)
    for module in board.gpus:
        items |= {name.format(module): version for name, version in _BOARD["gpu"].items()}
        tampered = changed[module].firmware if module in changed else None
        fault = faults.of_gpu(FirmwareChanged, module)
        if fault or tampered:
            items[f"HGX_FW_GPU_SXM_{module}"] = fault.version if fault else str(tampered)
    return dict(sorted(items.items()))
