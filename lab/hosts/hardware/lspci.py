"""Stand-in for `lspci` (pciutils): reads the host's /sys, so that it shows what is there now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lab.hosts.call import Answer, Call
from lab.hosts.faults import GpuFellOffTheBus

_DEVICES = "/sys/bus/pci/devices"

_CLASSES = {
    "0302": "3D controller",
    "0580": "Memory controller",
    "0604": "PCI bridge",
    "0680": "Bridge",
}
_VENDORS = {"10de": "NVIDIA Corporation", "11f8": "PMC-Sierra Inc."}
_NAMES = {
    ("10de", "2330"): "GH100 [H100 SXM5 80GB]",
    ("10de", "20b2"): "GA100 [A100 SXM4 80GB]",
    ("10de", "1af1"): "GA100 [A100 NVSwitch]",
    ("10de", "1db1"): "GV100GL [Tesla V100 SXM2 16GB]",
    ("10de", "22a3"): "GH100 [H100 NVSwitch]",
    ("11f8", "4000"): "PM40100 Switchtec PFX 100xG4 Fanout PCIe Switch",
}
_MODULES = {"10de": "nvidiafb, nouveau"}
_FLAGS = re.compile(r"-[nDkm]+")
_SLOT = re.compile(
    r"(?:(?:(?P<domain>[0-9a-fA-F]{1,4}):)?(?P<bus>[0-9a-fA-F]{1,2}):)?"
    r"(?P<slot>[0-9a-fA-F]{1,2})?(?:\.(?P<function>[0-7]))?"
)
_ID = re.compile(
    r"(?P<vendor>[0-9a-fA-F]{4}|\*)?:(?P<device>[0-9a-fA-F]{4}|\*)?(?::(?P<kind>\w+))?"
)


@dataclass(frozen=True, slots=True)
class _Function:
    address: str
    vendor: str
    device: str
    kind: str
    revision: str
    subsystem: str
    driver: str | None


def run(call: Call) -> Answer:
    if call.arguments == ("--version",):
        return Answer.out("lspci version 3.10.0 (stand-in of a simulated host)")
    flags, slot, wanted = "", "", ""
    rest = list(call.arguments)
    while rest:
        argument = rest.pop(0)
        if argument[:2] in {"-s", "-d"}:
            value = argument[2:] or (rest.pop(0) if rest else "")
            slot, wanted = (value, wanted) if argument[1] == "s" else (slot, value)
        elif _FLAGS.fullmatch(argument):
            flags += argument[1:]
        else:
            text = f"lspci: invalid option -- '{argument.lstrip('-')[:1]}'\n"
            return Answer.error(text + "Usage: lspci [<switches>]", 1)
    by_slot, by_id = _SLOT.fullmatch(slot), _ID.fullmatch(wanted) if wanted else None
    if by_slot is None or (wanted and by_id is None):
        option, value = ("-s", slot) if by_slot is None else ("-d", wanted)
        return Answer.error(f"lspci: {option}: Invalid syntax of {value!r}", 1)
    fallen = {
        device.address
        for module, device in call.machine.board.gpus.items()
        if call.faults.of_gpu(GpuFellOffTheBus, module)
    }
    shown = [
        _line(replace(function, revision="ff") if function.address in fallen else function, flags)
        for function in _functions(call.machine.path(_DEVICES))
        if _at(function, by_slot) and (by_id is None or _is(function, by_id))
    ]
    return Answer.out("".join(shown))


def _functions(folder: Path) -> Iterator[_Function]:
    for entry in sorted(folder.iterdir()):
        driver = entry / "driver"
        yield _Function(
            address=entry.name,
            vendor=_hex(entry / "vendor"),
            device=_hex(entry / "device"),
            kind=_hex(entry / "class")[:4],
            revision=_hex(entry / "revision"),
            subsystem=f"{_hex(entry / 'subsystem_vendor')}:{_hex(entry / 'subsystem_device')}",
            driver=driver.readlink().name if driver.is_symlink() else None,
        )


def _hex(path: Path) -> str:
    return path.read_text().strip().removeprefix("0x")


def _at(function: _Function, slot: re.Match[str]) -> bool:
    domain, bus, rest = function.address.split(":")
    number, _, part = rest.partition(".")
    parts = {"domain": domain, "bus": bus, "slot": number, "function": part}
    return all(
        slot[name] is None or int(slot[name], 16) == int(value, 16) for name, value in parts.items()
    )


def _is(function: _Function, wanted: re.Match[str]) -> bool:
    pairs = (("vendor", function.vendor), ("device", function.device), ("kind", function.kind))
    return all(
        wanted[name] in {None, "*"} or function_value.startswith(wanted[name].lower())
        for name, function_value in pairs
    )


def _line(function: _Function, flags: str) -> str:
    address = function.address if "D" in flags else function.address.removeprefix("0000:")
    kind = _CLASSES.get(function.kind, f"Class {function.kind}")
    vendor = _VENDORS.get(function.vendor, f"Vendor {function.vendor}")
    device = _NAMES.get((function.vendor, function.device), f"Device {function.device}")
    numbers = f"[{function.vendor}:{function.device}]"
    if "m" in flags:
        names = [f'"{kind}"', f'"{vendor}"', f'"{device}"', f"-r{function.revision}", '""', '""']
        if "nn" in flags:
            names[:3] = [
                f'"{kind} [{function.kind}]"',
                f'"{vendor} [{function.vendor}]"',
                f'"{device} [{function.device}]"',
            ]
        text = f"{address} {' '.join(names)}"
    elif flags.count("n") == 1:
        text = f"{address} {function.kind}: {function.vendor}:{function.device}"
    elif "n" in flags:
        text = f"{address} {kind} [{function.kind}]: {vendor} {device} {numbers}"
    else:
        text = f"{address} {kind}: {vendor} {device}"
    # Revision 00 is not shown; ff is what a device shows that fell off the bus.
    if "m" not in flags and function.revision != "00":
        text += f" (rev {function.revision})"
    lines = [text]
    if "k" in flags:
        lines.append(f"\tSubsystem: {vendor} Device [{function.subsystem}]")
        if function.driver:
            lines.append(f"\tKernel driver in use: {function.driver}")
        if function.vendor in _MODULES:
            lines.append(f"\tKernel modules: {_MODULES[function.vendor]}")
    return "".join(f"{line}\n" for line in lines)
