"""Stand-in for `nvidia_gpu_tools.py` (NVIDIA/gpu-admin-tools, release v2025.10.20o).

What surprises about the real one, and is the same here: its log, answers to queries included, goes to
standard error; a reset that cannot be done is a line of level ERROR and exit code 0; clearing the
memory of a GPU that was not reset before reports success; a knob that was set changes with the next
reset. What lies above the devices on the bus is left out of "Topo:".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lab.hosts.call import Answer, Call
from lab.hosts.hardware.board import PciDevice
from lab.hosts.nvidia.gpu_tools_device import (
    SWITCH_CLASS,
    Device,
    EndError,
    HangError,
    Options,
    Output,
    UsageError,
    parse,
)

NAME = "nvidia_gpu_tools.py"
VERSION = "v2025.10.20o"
_GPU_CLASS = "030200"
_INDEX = re.compile(r"(\w+)(?:\[([^\]]*)\])?")
_ID = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{4}")


def run(call: Call) -> Answer:
    line = [NAME, *call.arguments]
    head = f"NVIDIA GPU Tools version {VERSION}\nCommand line arguments: {line}\n"
    try:
        options = parse(call.arguments)
    except UsageError as usage:
        return Answer(usage.code, stdout=head + usage.stdout, stderr=usage.stderr)
    output = Output(call, head, options.log)
    code = 0
    try:
        _run(call, options, output)
    except EndError:
        code = 1
    except HangError:
        return Answer(never=True)
    return Answer(code, stdout=output.out, stderr=output.log)


def _run(call: Call, options: Options, output: Output) -> None:
    """Select devices, then do to each what the options say."""
    everything = sorted(
        (d for d in call.machine.board.devices if d.vendor == "10de"), key=lambda d: d.address
    )
    if options.devices is None:
        _open(call, everything, output)
        listed = "".join(f"  {n} {output.name(d)}\n" for n, d in enumerate(everything))
        output.out += f"GPUs:\n{listed}Other:\n"
        output.line("INFO", "No GPU specified, select GPU with --gpu, --gpu-bdf, or --gpu-name")
        return
    devices = list(_select(options.devices, everything, output))
    if not devices:
        output.line("ERROR", f"No devices found matching: {options.devices}")
        raise EndError
    _open(call, devices, output)
    output.out += "Topo:\n" + "".join(f"  {output.name(device)}\n" for device in devices)
    for device in devices:
        output.line("INFO", f"Selected {output.name(device)}")
    for device in devices:
        Device(call, options, device, output).act()


def _open(call: Call, devices: Sequence[PciDevice], output: Output) -> None:
    """Map the devices' registers, which only root may."""
    for device in devices:
        path = f"/sys/bus/pci/devices/{device.address}"
        if not call.is_root:
            output.crash(f"PermissionError: [Errno 13] Permission denied: '{path}/resource0'")
        if output.broken(device):
            output.line("ERROR", f"Device {path} broken ")


def _select(wanted: str, everything: Sequence[PciDevice], output: Output) -> Iterator[PciDevice]:
    for part in (part.strip() for part in wanted.split(",")):
        word = _INDEX.fullmatch(part)
        if word is not None and word[1] in {"gpus", "nvswitches"}:
            kind = _GPU_CLASS if word[1] == "gpus" else SWITCH_CLASS
            found = [device for device in everything if device.class_code == kind]
            yield from found if word[2] is None else _indexed(word[2], found, output)
        elif _ID.fullmatch(part):
            yield from (d for d in everything if f"{d.vendor}:{d.device}" == part.lower())
        elif ":" in part:
            # A part of an address is enough, and the first device that has it is taken.
            at = next((device for device in everything if part in device.address), None)
            if at is None:
                output.line("WARNING", f"No device found at BDF {part}")
            else:
                yield at
        else:
            output.crash(f"ValueError: Unknown device specifier: {part}")


def _indexed(index: str, found: Sequence[PciDevice], output: Output) -> Sequence[PciDevice]:
    """`gpus[0]`, `gpus[2:4]`: as Python indexes a list."""
    try:
        numbers = [int(part) if part else None for part in index.split(":")]
    except ValueError as error:
        output.crash(f"ValueError: {error}")
    if len(numbers) > 1:
        return found[slice(*numbers[:3])]
    if numbers[0] is None:
        output.crash("ValueError: invalid literal for int() with base 10: ''")
    if numbers[0] >= len(found):
        output.line("ERROR", f"Index {index} out of range for array of length {len(found)}")
        return []
    return [found[numbers[0]]]
