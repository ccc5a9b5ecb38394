"""What forbids to bind functions to vfio-pci, and what has to be repaired. Pure.

What an operating system uses (a disk, a network card, a GPU under load) is never taken away.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

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
                yield _repair("vfio.left-bound", f"{function.address} is still bound", "release")
    for file in files:
        yield from _file(file, live.files[file.path])
    unit = live.unit
    if not unit.is_enabled() or unit.active != "active" or unit.stale:
        state = f"{unit.enabled} and {unit.active}{', from an older file' if unit.stale else ''}"
        yield _repair("vfio.unit-inactive", f"{UNIT} is {state}", "bind", path=UNIT, missing=True)


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
    users = ", ".join(live.users)
    problem = f"{function.address} is in use ({users}), so it is not given back"
    return Finding("vfio.in-use", problem, "end the virtual machine first", (function.address,))


def _function(function: VfioFunction, live: FoundFunction) -> Iterator[Finding]:
    where, path = function.address, (function.address,)
    if not live.present:
        problem = f"{where} is not there: no PCI function has this address"
        yield blocked("vfio.function-missing", problem, path)
    elif live.header == FALLEN_HEADER or live.pci_id == "ffff:ffff":
        yield blocked("vfio.off-the-bus", f"{where} fell off the bus (it answers ff)", path)
    elif live.pci_id != function.pci_id:
        problem = (
            f"{where} is {live.pci_id}, not {function.pci_id}: another device has this address"
        )
        remedy = f"compare with `lspci -Dnn -d {function.pci_id}` and correct the configuration"
        yield Finding("vfio.other-device", problem, remedy, path)
    elif not is_it(function, live):
        wanted = function.pci_class or "that of an endpoint"
        yield blocked("vfio.other-class", f"{where} has class {live.pci_class}, not {wanted}", path)
    elif live.driver != DRIVER and live.users:
        users = ", ".join(live.users)
        problem = f"{where} is in use on driver {live.driver or 'none'} ({users})"
        yield Finding("vfio.in-use", problem, "end what uses it, then run again", path)
    elif live.driver != DRIVER:
        problem = f"{where} is on {live.driver or 'no driver'}"
        yield _repair("vfio.unbound", problem, "bind", path=where)


def _file(file: WantedFile, live: LiveFile | None) -> Iterator[Finding]:
    if live is None:
        yield _repair(
            "vfio.file-missing", f"{file.path} is gone", "files", path=file.path, missing=True
        )
    elif OURS not in live.content:
        yield blocked("vfio.file-foreign", f"{file.path} is not ours", (file.path,))
    elif (live.sha256, live.mode) != (sha256_of(file.content.encode()), file.mode):
        yield _repair("vfio.file-changed", f"{file.path} was changed", "files", path=file.path)
