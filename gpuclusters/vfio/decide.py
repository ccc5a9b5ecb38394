"""What forbids to bind functions to vfio-pci, and what has to be repaired. Pure.

What an operating system uses (a disk, a network card, a GPU under load) is never taken away.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpuclusters.core.finding import Finding, blocked, repair
from gpuclusters.host.model import UNIT_FOLDER, LiveFile, UnitState, sha256_of
from gpuclusters.vfio.model import FoundFunction, VfioBindingInputs, VfioFunction

DRIVER = "vfio-pci"
UNIT = "gpu-clusters-vfio.service"
UNIT_PATH = f"{UNIT_FOLDER}/{UNIT}"
SCRIPT_PATH = "/usr/local/sbin/gpu-clusters-vfio"
LIST_PATH = "/etc/gpu-clusters/vfio-functions"
FALLEN_HEADER = "7f"
"""Header type of a function that answers nothing but ones: it fell off the bus."""
OURS = b"Written by gpu-clusters"
_repair = partial(
    repair, remedy=f"see `journalctl -u {UNIT}` and `dmesg` on the host, then run again"
)


@dataclass(frozen=True, slots=True)
class WantedFile:
    path: str
    content: str
    mode: str = "0644"


@dataclass(frozen=True, slots=True)
class LiveBinding:
    """What is on the host: functions by address, our files by path, our unit."""

    functions: Mapping[str, FoundFunction]
    files: Mapping[str, LiveFile | None]
    unit: UnitState


def wanted_files(inputs: VfioBindingInputs, script: str, unit: str) -> tuple[WantedFile, ...]:
    """A script, a unit that runs it at every boot, and the list that it reads.

    The list comes last: without it the unit does nothing.
    """
    return (
        WantedFile(SCRIPT_PATH, script, "0755"),
        WantedFile(UNIT_PATH, unit),
        WantedFile(LIST_PATH, render_list(inputs.functions)),
    )


def render_list(functions: Sequence[VfioFunction]) -> str:
    """The list on the host that the unit reads at every boot."""
    head = (
        "# Written by gpu-clusters. PCI functions that belong to vfio-pci, and what must be found there:\n"
        "# address=vendor:device=class. Nothing else is ever taken from its driver.\n"
    )
    return head + "".join(f"{f.entry}\n" for f in sorted(functions, key=lambda f: f.address))


def findings(
    inputs: VfioBindingInputs,
    gone: Sequence[VfioFunction],
    files: Sequence[WantedFile],
    live: LiveBinding,
) -> Iterator[Finding]:
    """How a host differs from its inputs; `gone` are functions that were listed before."""
    for function in sorted(inputs.functions, key=lambda f: f.address):
        yield from _function(function, live.functions[function.address])
    for function in gone:
        found = live.functions[function.address]
        if is_it(function, found) and DRIVER in (found.driver, found.override):
            if found.users and found.driver == DRIVER:
                yield in_use(function, found)
            else:
                yield _repair("vfio.left-bound", step="release", function=function)
    for file in files:
        yield from _file(file, live.files[file.path])
    unit = live.unit
    if not unit.is_enabled() or unit.active != "active" or unit.stale:
        state = f"{unit.enabled} and {unit.active}{', from an older file' if unit.stale else ''}"
        yield _repair("vfio.unit-inactive", UNIT, step="bind", missing=True, state=state)


def differences(
    found: Sequence[Finding], files: Sequence[WantedFile], live: LiveBinding
) -> Iterator[Finding]:
    """What forbids to take a host over: all that differs, but for what a run of ours has begun."""
    listed, wanted = live.files[LIST_PATH], files[-1].content.encode()
    begun = listed is not None and listed.content == wanted
    for one in found:
        if not one.missing and not (begun and one.code == "vfio.unbound"):
            yield one


def is_it(function: VfioFunction, live: FoundFunction) -> bool:
    """Whether what is at the address is what was named."""
    return (
        live.present
        and live.pci_id == function.pci_id
        and live.pci_class.startswith(function.pci_class)
        and not live.pci_class.startswith("0604")  # a bridge of buses
    )


def in_use(function: VfioFunction, live: FoundFunction) -> Finding:
    """A function cannot be given back while a virtual machine has it."""
    return blocked("vfio.in-use", function.address, case="bound", live=live)


def _function(function: VfioFunction, live: FoundFunction) -> Iterator[Finding]:
    where, told = function.address, dict[str, Any](function=function, live=live)
    if not live.present:
        yield blocked("vfio.function-missing", where)
    elif live.header == FALLEN_HEADER or live.pci_id == "ffff:ffff":
        yield blocked("vfio.off-the-bus", where)
    elif live.pci_id != function.pci_id:
        yield blocked("vfio.other-device", where, **told)
    elif not is_it(function, live):
        wanted = function.pci_class or "that of an endpoint"
        yield blocked("vfio.other-class", where, **told, wanted=wanted)
    elif live.driver != DRIVER and live.users:
        yield blocked("vfio.in-use", where, **told, driver=live.driver or "none")
    elif live.driver != DRIVER:
        yield _repair("vfio.unbound", where, step="bind", driver=live.driver or "no driver")


def _file(file: WantedFile, live: LiveFile | None) -> Iterator[Finding]:
    if live is None:
        yield _repair("vfio.file-missing", file.path, step="files", missing=True)
    elif OURS not in live.content:
        yield blocked("vfio.file-foreign", file.path)
    elif (live.sha256, live.mode) != (sha256_of(file.content.encode()), file.mode):
        yield _repair("vfio.file-changed", file.path, step="files")
