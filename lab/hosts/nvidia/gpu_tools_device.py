"""What one run of `nvidia_gpu_tools.py` does to one device, in the real tool's order."""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, NoReturn

from lab.hosts.call import Call
from lab.hosts.faults import (
    GpuFellOffTheBus,
    MemoryNotCleared,
    ModuleMapShuffled,
    ModuleNameUnknown,
    ResetHangs,
    ResetNotSupported,
)
from lab.hosts.hardware import gpus
from lab.hosts.hardware.board import PciDevice

_MODES = {"set_cc_mode": ("off", "on", "devtools"), "set_ppcie_mode": ("off", "on")}


@dataclass(frozen=True, slots=True)
class Options:
    """One command line, by the real options' names."""

    devices: str | None
    log: str
    reset_with_sbr: bool
    reset_with_flr: bool
    reset_with_os: bool
    query_ecc_state: bool
    query_cc_mode: bool
    query_ppcie_mode: bool
    query_mig_mode: bool
    query_module_name: bool
    query_l4_serial_number: bool
    set_cc_mode: str | None
    set_ppcie_mode: str | None
    clear_memory: bool
    force_ecc_on_after_reset: bool
    force_mig_off_after_reset: bool
    block_all_nvlinks: bool
    knobs_reset_to_defaults: list[str] | None
    knobs_reset_to_defaults_list: bool
    noop: bool

    @property
    def gpu_only(self) -> bool:
        """Whether something is asked that the tool asks of GPUs before it looks whether they work."""
        return bool(
            self.query_ecc_state
            or self.query_cc_mode
            or self.query_mig_mode
            or self.query_l4_serial_number
            or self.set_cc_mode
            or self.clear_memory
            or self.force_ecc_on_after_reset
            or self.force_mig_off_after_reset
        )


class UsageError(Exception):
    """The tool prints this and ends: the help, or what is wrong with the command line."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        super().__init__()
        self.code, self.stdout, self.stderr = code, stdout, stderr


class _Parser(argparse.ArgumentParser):
    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise UsageError(status, "", message or "")


def parse(arguments: Sequence[str]) -> Options:
    """Read a command line; `UsageError` holds what the tool prints instead of running."""
    parser = _Parser(prog="nvidia_gpu_tools.py", epilog="(stand-in of a simulated host)")
    parser.add_argument("--devices")
    levels = ("debug", "info", "warning", "error", "critical")
    parser.add_argument("--log", choices=levels, default="info")
    for name, modes in _MODES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", choices=modes)
    parser.add_argument("--knobs-reset-to-defaults", nargs="+")
    flags = [field.name for field in fields(Options) if field.type == "bool"]
    for name in flags:
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true")
    out, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            return Options(**vars(parser.parse_args(list(arguments))))
    except UsageError as usage:
        raise UsageError(
            usage.code, out.getvalue() + usage.stdout, errors.getvalue() + usage.stderr
        ) from None


SWITCH_CLASS: Final = "068000"
_NAMES = {"2330": "H100", "22a3": "NVSwitch_gen3"}


class EndError(Exception):
    """The tool ends here, with exit code 1."""


class HangError(Exception):
    """The tool never ends."""


class Output:
    def __init__(self, call: Call, head: str, level: str) -> None:
        self._call = call
        self._level = logging.getLevelNamesMapping()[level.upper()]
        self.out = head
        self.log = ""

    def line(self, level: str, text: str) -> None:
        if logging.getLevelNamesMapping()[level] < self._level:
            return
        now = time.time()
        stamp = time.strftime("%Y-%m-%d,%H:%M:%S", time.gmtime(now))
        self.log += f"{stamp}.{int(now * 1000) % 1000:03d} {level:<8} {text}\n"

    def about(self, level: str, device: PciDevice, text: str) -> None:
        self.line(level, f"{self.name(device)} {text}")

    def crash(self, error: str) -> NoReturn:
        self.log += f"Traceback (most recent call last):\n  (stand-in)\n{error}\n"
        raise EndError

    def broken(self, device: PciDevice) -> bool:
        module = device.module
        return module is not None and bool(self._call.faults.of_gpu(GpuFellOffTheBus, module))

    def name(self, device: PciDevice) -> str:
        if self.broken(device):
            return f"GPU {device.address} [broken, cfg space working 0 bars configured 0]"
        kind = "GPU" if device.module is not None else "NvSwitch"
        text = self._call.machine.read_text(f"/sys/bus/pci/devices/{device.address}/resource")
        bar0 = int((text or "0x0").split()[0], 16)
        name = _NAMES.get(device.device, device.device)
        return f"{kind} {device.address} {name} 0x{device.device} BAR0 0x{bar0:x}"


class Device:
    def __init__(self, call: Call, options: Options, device: PciDevice, output: Output) -> None:
        self._call = call
        self._options = options
        self._device = device
        self._output = output
        # Switches keep nothing from one tenant to the next that we simulate.
        self._module = device.module

    def act(self) -> None:
        self._reset()
        if self._output.broken(self._device):
            if self._options.gpu_only:
                self._output.crash("AttributeError: 'BrokenGpu' object cannot do that")
            text = "is broken and --recover-broken-gpu was not specified, returning failure."
            self._error(text)
        if self._module is not None:
            self._gpu(self._module)
        self._any()

    def _reset(self) -> None:
        options = self._options
        if not (options.reset_with_sbr or options.reset_with_flr or options.reset_with_os):
            return
        module = self._module
        if module is None:
            self._note_reset()
            return
        faults = self._call.faults
        if faults.of_gpu(ResetHangs, module):
            raise HangError
        unsupported = faults.of_gpu(ResetNotSupported, module)
        if options.reset_with_sbr and unsupported:
            text = "Cannot reset the GPU with SBR as the upstream bridge is not accessible"
            self._output.line("ERROR", text)
        elif options.reset_with_sbr:
            self._do_reset(module, bus=True)
        if options.reset_with_flr:
            if unsupported:
                self._error("cannot reset with FLR as it is not supported")
            self._do_reset(module, bus=False)
        if options.reset_with_os:
            path = f"/sys/bus/pci/devices/{self._device.address}/reset"
            if unsupported:
                self._output.about("ERROR", self._device, f"reset not present: '{path}'")
                self._output.crash(
                    f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'"
                )
            self._do_reset(module, bus=False)

    def _do_reset(self, module: int, *, bus: bool) -> None:
        if self._output.broken(self._device):
            return
        with gpus.change(self._call.machine.folder, module) as gpu:
            gpu.reset(bus=bus)
        self._note_reset()

    def _note_reset(self) -> None:
        machine = self._call.machine
        machine.note("gpu", change="reset", device=self._device.address, module=self._module)
        for partition, user in machine.partitions_in_use().items():
            modules = machine.board.modules(partition)
            if self._module is None or self._module in modules:
                what = f"{self._device.address} reset under {user['holder']}"
                machine.note("harm", what=what, partition=partition)

    def _gpu(self, module: int) -> None:
        options = self._options
        if options.query_ecc_state:
            self._info(f"ECC is {self._knob('ecc')}")
        if options.set_cc_mode:
            self._pend({"cc": options.set_cc_mode})
            text = f"CC mode set to {options.set_cc_mode}. It will be active after GPU reset."
            self._info(text)
        if options.query_cc_mode:
            self._info(f"CC mode is {self._knob('cc')}")
        if options.query_l4_serial_number:
            serial = int.from_bytes(f"{self._call.machine.name}{module}".encode()[-8:], "big")
            self._output.out += f"L4 serial number: {serial:#x}\n"
        if options.clear_memory:
            self._clear(module)
        if options.force_ecc_on_after_reset:
            self._pend({"ecc": "enabled"})
            self._info("set ECC to be enabled after next reset")
        if options.query_mig_mode:
            self._info(f"MIG mode is {self._knob('mig')}")
        if options.force_mig_off_after_reset:
            self._pend({"mig": "disabled"})
            self._info("set MIG to be disabled after next reset")

    def _clear(self, module: int) -> None:
        if self._call.faults.of_gpu(MemoryNotCleared, module):
            name = f"GPU {self._device.address}"
            self._output.crash(
                f"gpu.error.GpuPollTimeout: {name} Timed out polling register "
                "memory_clear_finished (0x100b20), value 0x0 is not the expected 0x1. Timeout 5.0 secs"
            )
        with gpus.change(self._call.machine.folder, module) as gpu:
            gpu.clear_memory()
        note = self._call.machine.note
        note("gpu", change="clear-memory", device=self._device.address, module=module)

    def _any(self) -> None:
        """What the tool does to GPUs and switches alike."""
        options, module = self._options, self._module
        if module is not None and self._knob("cc") != "off":
            text = f"has CC mode {self._knob('cc')}, some functionality may not work"
            self._output.about("WARNING", self._device, text)
        if options.set_ppcie_mode:
            self._pend({"ppcie": options.set_ppcie_mode})
            mode = options.set_ppcie_mode
            self._info(f"PPCIe mode set to {mode}. It will be active after GPU or switch reset.")
        if options.query_ppcie_mode:
            self._info(f"PPCIe mode is {self._knob('ppcie')}")
        if options.query_module_name:
            if module is not None and self._nameless(module):
                self._error("does not support module name query")
            self._info(f"module name {self._module_name()}")
        if options.block_all_nvlinks:
            if module is not None:
                with gpus.change(self._call.machine.folder, module) as gpu:
                    gpu.links_blocked = True
            links = self._call.machine.board.links_per_gpu if module is not None else 64
            self._info(f"blocked NVLinks {range(links)}")
        defaults = self._defaults()
        if options.knobs_reset_to_defaults_list:
            self._info(str(defaults))
        if options.knobs_reset_to_defaults:
            names = options.knobs_reset_to_defaults
            self._info(f"resetting knobs {names} to defaults")
            unknown = [name for name in names if name not in {*defaults, "all"}]
            if unknown and "all" not in names:
                self._output.crash(f"ValueError: GPU doesn't support knob {unknown[0]}")
            chosen = defaults if "all" in names else names
            self._pend({name: gpus.DEFAULT_KNOBS[name] for name in chosen})

    def _nameless(self, module: int) -> bool:
        return any(f.module == module for f in self._call.faults.all(ModuleNameUnknown))

    def _module_name(self) -> str:
        if self._module is not None:
            for fault in self._call.faults.all(ModuleMapShuffled):
                one, other = fault.modules
                if self._module in fault.modules:
                    return f"SXM_{other if self._module == one else one}"
            return f"SXM_{self._module}"
        switches = [d for d in self._call.machine.board.devices if d.class_code == SWITCH_CLASS]
        return f"NVSwitch_{switches.index(self._device)}"

    def _defaults(self) -> dict[str, bool | str]:
        if self._module is None:
            return {"ppcie": "off"}
        return {"ecc": True, "mig": False, "cc": "off", "ppcie": "off"}

    def _knob(self, name: str) -> str:
        if self._module is None:
            return gpus.DEFAULT_KNOBS[name]
        gpu = gpus.read_one(self._call.machine.folder, self._module)
        return gpu.knob(name, self._module, self._call.faults)

    def _pend(self, knobs: dict[str, str]) -> None:
        if self._module is not None:
            with gpus.change(self._call.machine.folder, self._module) as gpu:
                gpu.pending_knobs = {**gpu.pending_knobs, **knobs}

    def _info(self, text: str) -> None:
        self._output.about("INFO", self._device, text)

    def _error(self, text: str) -> NoReturn:
        self._output.about("ERROR", self._device, text)
        raise EndError
