"""Stand-in for `nvidia_gpu_tools.py` (NVIDIA/gpu-admin-tools, release v2025.10.20o).

What surprises about the real one, and is the same here: its log, answers to queries included, goes to
standard error; a reset that cannot be done is a line of level ERROR and exit code 0; clearing the
memory of a GPU that was not reset before reports success; a knob that was set changes with the next
reset. What lies above the devices on the bus is left out of "Topo:".
"""

import time
from collections.abc import Iterator
from typing import NoReturn

from lab.hosts import faults
from lab.hosts.call import Answer, Call
from lab.hosts.hardware import gpus
from lab.hosts.hardware.board import PciDevice
from lab.hosts.program import STAND_IN, program

_NAME = "nvidia_gpu_tools.py"
_VERSION = "v2025.10.20o"
_RESET, _CLEAR, _DEFAULTS = "--reset-with-sbr", "--clear-memory", "--knobs-reset-to-defaults"
_MODULE = "--query-module-name"
_QUERIES = {
    "--query-ecc-state": ("ecc", "ECC"),
    "--query-cc-mode": ("cc", "CC mode"),
    "--query-mig-mode": ("mig", "MIG mode"),
    "--query-ppcie-mode": ("ppcie", "PPCIe mode"),
}


class _EndError(Exception):
    """The tool ends here, with exit code 1."""


class _HangError(Exception):
    """The tool never ends."""


@program(
    _NAME,
    flags=f"{_RESET} {_CLEAR} {_MODULE} {' '.join(_QUERIES)}",
    values=f"--devices {_DEFAULTS}",
    unknown=f"{_NAME}: error: unrecognized arguments: {{option}}",
    unknown_exit=2,
    version=_VERSION,
)
def gpu_tools(call: Call) -> Answer:
    run = _Run(call)
    try:
        run.all()
    except _EndError:
        return Answer(1, run.out, run.log)
    except _HangError:
        return Answer(never=True)
    return Answer(0, run.out, run.log)


class _Run:
    def __init__(self, call: Call) -> None:
        self._call = call
        self._machine = call.machine
        line = [_NAME, *call.arguments]
        self.out = (
            f"NVIDIA GPU Tools version {_VERSION} {STAND_IN}\nCommand line arguments: {line}\n"
        )
        self.log = ""

    def all(self) -> None:
        """Select devices, then do to each what the options say."""
        devices = dict(self._select(self._call.value("--devices") or ""))
        if not devices:
            self._line("ERROR", f"No devices found matching: {self._call.value('--devices')}")
            raise _EndError
        for device in devices.values():
            path = f"/sys/bus/pci/devices/{device.address}"
            if not self._call.is_root:
                self._crash(f"PermissionError: [Errno 13] Permission denied: '{path}/resource0'")
            if self._is_broken(device):
                self._line("ERROR", f"Device {path} broken ")
        self.out += "Topo:\n" + "".join(f"  {self._called(d)}\n" for d in devices.values())
        for device in devices.values():
            self._line("INFO", f"Selected {self._called(device)}")
        for module, device in devices.items():
            self._act(module, device)

    def _select(self, wanted: str) -> Iterator[tuple[int, PciDevice]]:
        there = sorted(self._machine.board.gpus.items(), key=lambda pair: pair[1].address)
        for part in (part.strip() for part in wanted.split(",")):
            if part == "gpus":
                yield from there
            elif ":" not in part:
                self._crash(f"ValueError: Unknown device specifier: {part}")
            else:
                # A part of an address is enough, and the first device that has it is taken.
                found = [pair for pair in there if part in pair[1].address]
                yield from found[:1]
                if not found:
                    self._line("WARNING", f"No device found at BDF {part}")

    def _act(self, module: int, device: PciDevice) -> None:
        call = self._call
        if call.has(_RESET):
            self._reset(module, device)
        if self._is_broken(device):
            if call.has(_CLEAR, *list(_QUERIES)[:3]):
                self._crash("AttributeError: 'BrokenGpu' object cannot do that")
            text = "is broken and --recover-broken-gpu was not specified, returning failure."
            self._about(device, text, "ERROR")
            raise _EndError
        if call.has(_CLEAR):
            self._clear(module, device)
        knobs = {name: self._knob(name, module) for name, _ in _QUERIES.values()}
        for option, (name, shown) in _QUERIES.items():
            if call.has(option):
                self._about(device, f"{shown} is {knobs[name]}")
        if knobs["cc"] != "off":
            text = f"has CC mode {knobs['cc']}, some functionality may not work"
            self._about(device, text, "WARNING")
        if call.has(_MODULE):
            self._say_module(module, device)
        chosen = call.value(_DEFAULTS)
        if chosen:
            self._about(device, f"resetting knobs {[chosen]} to defaults")
            if chosen not in {*gpus.DEFAULT_KNOBS, "all"}:
                self._crash(f"ValueError: GPU doesn't support knob {chosen}")
            with gpus.change(self._machine.folder, module) as gpu:
                meant = {n: v for n, v in gpus.DEFAULT_KNOBS.items() if chosen in {n, "all"}}
                gpu.pending_knobs = {**gpu.pending_knobs, **meant}

    def _reset(self, module: int, device: PciDevice) -> None:
        injected = self._call.faults
        if injected.of_gpu(faults.ResetHangs, module):
            raise _HangError
        if injected.of_gpu(faults.ResetNotSupported, module):
            text = "Cannot reset the GPU with SBR as the upstream bridge is not accessible"
            self._line("ERROR", text)
        elif not self._is_broken(device):
            with gpus.change(self._machine.folder, module) as gpu:
                gpu.reset()
            self._machine.note("gpu", change="reset", device=device.address, module=module)
            for partition, user in self._machine.partitions_in_use().items():
                if module in self._machine.board.modules(partition):
                    what = f"{device.address} reset under {user['holder']}"
                    self._machine.note("harm", what=what, partition=partition)

    def _clear(self, module: int, device: PciDevice) -> None:
        if self._call.faults.of_gpu(faults.MemoryNotCleared, module):
            self._crash(
                f"gpu.error.GpuPollTimeout: GPU {device.address} Timed out polling register "
                "memory_clear_finished (0x100b20), value 0x0 is not the expected 0x1. Timeout 5.0 secs"
            )
        with gpus.change(self._machine.folder, module) as gpu:
            gpu.clear_memory()
        self._machine.note("gpu", change="clear-memory", device=device.address, module=module)

    def _say_module(self, module: int, device: PciDevice) -> None:
        injected = self._call.faults
        if any(fault.module == module for fault in injected.all(faults.ModuleNameUnknown)):
            self._about(device, "does not support module name query", "ERROR")
            raise _EndError
        for fault in injected.all(faults.ModuleMapShuffled):
            if module in fault.modules:
                module = next(other for other in fault.modules if other != module)
                break
        self._about(device, f"module name SXM_{module}")

    def _knob(self, name: str, module: int) -> str:
        gpu = gpus.read_one(self._machine.folder, module)
        return gpu.knob(name, module, self._call.faults)

    def _is_broken(self, device: PciDevice) -> bool:
        module = device.module or 0
        return self._call.faults.of_gpu(faults.GpuFellOffTheBus, module) is not None

    def _called(self, device: PciDevice) -> str:
        if self._is_broken(device):
            return f"GPU {device.address} [broken, cfg space working 0 bars configured 0]"
        text = self._machine.read_text(f"/sys/bus/pci/devices/{device.address}/resource")
        bar0 = int((text or "0x0").split()[0], 16)
        return f"GPU {device.address} H100 0x{device.device} BAR0 0x{bar0:x}"

    def _line(self, level: str, text: str) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%d,%H:%M:%S", time.gmtime(now))
        self.log += f"{stamp}.{int(now * 1000) % 1000:03d} {level:<8} {text}\n"

    def _about(self, device: PciDevice, text: str, level: str = "INFO") -> None:
        self._line(level, f"{self._called(device)} {text}")

    def _crash(self, error: str) -> NoReturn:
        self.log += f"Traceback (most recent call last):\n  (stand-in)\n{error}\n"
        raise _EndError
