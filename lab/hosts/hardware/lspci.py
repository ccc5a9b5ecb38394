"""Stand-in for `lspci` (pciutils): reads the host's /sys, so that it shows what is there now."""

import re
from pathlib import Path

from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.faults import GpuFellOffTheBus
from lab.hosts.program import program

_CLASSES = {
    "0302": "3D controller",
    "0580": "Memory controller",
    "0604": "PCI bridge",
    "0680": "Bridge",
}
_VENDORS = {"10de": "NVIDIA Corporation", "11f8": "PMC-Sierra Inc."}
_NAMES = {
    "10de:2330": "GH100 [H100 SXM5 80GB]",
    "10de:20b2": "GA100 [A100 SXM4 80GB]",
    "10de:1af1": "GA100 [A100 NVSwitch]",
    "10de:1db1": "GV100GL [Tesla V100 SXM2 16GB]",
    "10de:22a3": "GH100 [H100 NVSwitch]",
    "11f8:4000": "PM40100 Switchtec PFX 100xG4 Fanout PCIe Switch",
}
_HEX = "[0-9a-fA-F]"
_SLOT = re.compile(rf"((?:{_HEX}{{4}}:)?{_HEX}{{2}}:{_HEX}{{2}}\.[0-7])?")
_ID = re.compile(rf"({_HEX}{{4}})?:({_HEX}{{4}})?(?::({_HEX}{{4}}))?")


@program(
    "lspci",
    of="pciutils",
    flags="-n -nn -nnk -D -Dn -Dnn",
    values="-s -d",
    unknown="lspci: invalid option -- '{letters}'",
    version="lspci version 3.10.0",
)
def lspci(call: Call) -> Answer:
    """`lspci [-D] [-n|-nn|-nnk] [-s SLOT] [-d [VENDOR]:[DEVICE][:CLASS]]`."""
    flags = "".join(call.given.flags)
    slot, wanted = call.value("-s") or "", call.value("-d") or ":"
    by_slot, by_id = _SLOT.fullmatch(slot), _ID.fullmatch(wanted)
    if by_slot is None or by_id is None:
        option, value = ("-s", slot) if by_slot is None else ("-d", wanted)
        raise RefusedError(f"lspci: {option}: Invalid syntax of {value!r}")
    gpus = call.machine.board.gpus.items()
    fallen = {d.address for n, d in gpus if call.faults.of_gpu(GpuFellOffTheBus, n)}
    shown = ""
    for entry in sorted(call.machine.path("/sys/bus/pci/devices").iterdir()):
        ids = (_hex(entry, "vendor"), _hex(entry, "device"), _hex(entry, "class")[:4])
        fits = all(want in (None, has) for want, has in zip(by_id.groups(), ids, strict=True))
        if fits and entry.name.endswith(slot.lower()):
            shown += _line(entry, *ids, flags, has_fallen=entry.name in fallen)
    return Answer.out(shown)


def _hex(device: Path, name: str) -> str:
    return (device / name).read_text().strip().removeprefix("0x")


def _line(entry: Path, vendor: str, device: str, kind: str, flags: str, *, has_fallen: bool) -> str:
    address = entry.name if "D" in flags else entry.name.removeprefix("0000:")
    ids = f"{vendor}:{device}"
    described = _CLASSES.get(kind, f"Class {kind}")
    maker = _VENDORS.get(vendor, f"Vendor {vendor}")
    name = f"{maker} {_NAMES.get(ids, f'Device {device}')}"
    text = {
        0: f"{described}: {name}",
        1: f"{kind}: {ids}",
        2: f"{described} [{kind}]: {name} [{ids}]",
    }[flags.count("n")]
    # Revision 00 is not shown; ff is what a device shows that fell off the bus.
    revision = "ff" if has_fallen else _hex(entry, "revision")
    text = f"{address} {text}{'' if revision == '00' else f' (rev {revision})'}\n"
    driver = entry / "driver"
    if "k" in flags and driver.is_symlink():
        text += f"\tKernel driver in use: {driver.readlink().name}\n"
    return text
