"""What `nvidia_gpu_tools.py` prints: its log on standard error, the rest on standard output."""

from __future__ import annotations

import logging
import time
from typing import Final, NoReturn

from lab.hosts.board import PciDevice
from lab.hosts.faults import GpuFellOffTheBus
from lab.hosts.standins.call import Call

SWITCH_CLASS: Final = "068000"
_NAMES = {"2330": "H100", "22a3": "NVSwitch_gen3"}


class EndError(Exception):
    """The tool ends here, with exit code 1."""


class HangError(Exception):
    """The tool never ends."""


class Output:
    """What one run has printed so far."""

    def __init__(self, call: Call, head: str, level: str) -> None:
        self._call = call
        self._level = logging.getLevelNamesMapping()[level.upper()]
        self.out = head
        self.log = ""

    def line(self, level: str, text: str) -> None:
        """A line of the log."""
        if logging.getLevelNamesMapping()[level] < self._level:
            return
        now = time.time()
        stamp = time.strftime("%Y-%m-%d,%H:%M:%S", time.gmtime(now))
        self.log += f"{stamp}.{int(now * 1000) % 1000:03d} {level:<8} {text}\n"

    def about(self, level: str, device: PciDevice, text: str) -> None:
        """A line of the log about a device."""
        self.line(level, f"{self.name(device)} {text}")

    def crash(self, error: str) -> NoReturn:
        """The tool ends with a Python traceback."""
        self.log += f"Traceback (most recent call last):\n  (stand-in)\n{error}\n"
        raise EndError

    def broken(self, device: PciDevice) -> bool:
        """Whether the device answers nothing."""
        module = device.module
        return module is not None and bool(self._call.faults.of_gpu(GpuFellOffTheBus, module))

    def name(self, device: PciDevice) -> str:
        """How the tool names a device."""
        if self.broken(device):
            return f"GPU {device.address} [broken, cfg space working 0 bars configured 0]"
        kind = "GPU" if device.module is not None else "NvSwitch"
        text = self._call.machine.read_text(f"/sys/bus/pci/devices/{device.address}/resource")
        bar0 = int((text or "0x0").split()[0], 16)
        name = _NAMES.get(device.device, device.device)
        return f"{kind} {device.address} {name} 0x{device.device} BAR0 0x{bar0:x}"
