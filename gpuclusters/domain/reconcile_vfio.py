"""Functions of a host that belong to vfio-pci: read, compare, act. Refusals come before any change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuclusters.domain import vfio
from gpuclusters.domain.host_boot import MARK
from gpuclusters.domain.host_file import sha256_of
from gpuclusters.domain.host_unit import FOLDER, HostUnits
from gpuclusters.domain.ports import Journal, NodeFiles
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.vfio import FoundFunction, VfioBindingInputs, VfioFunction

UNIT_PATH = f"{FOLDER}/{vfio.UNIT}"
_OWNER = "root:root"
_OURS = MARK.removeprefix("# ").partition(";")[0]


class VfioHost(Protocol):
    """PCI functions and drivers of one host."""

    @property
    def place(self) -> str:
        """The host as errors name it."""

    def inspect(self, functions: Sequence[VfioFunction]) -> Mapping[str, FoundFunction]:
        """What the kernel says now about each address."""

    def release(self, functions: Sequence[VfioFunction]) -> None:
        """Give functions back to the drivers that they have by nature."""


@dataclass(frozen=True, slots=True)
class VfioParts:
    """What lies on the host: a script, a unit that runs it at every boot, the list that it reads."""

    script: str
    unit: str

    def files(self, inputs: VfioBindingInputs) -> Mapping[str, tuple[str, str]]:
        """Content and mode by path; the list comes last, without it the unit does nothing."""
        return {
            vfio.SCRIPT_PATH: (self.script, "0755"),
            UNIT_PATH: (self.unit, "0644"),
            vfio.LIST_PATH: (vfio.render_list(inputs.functions), "0644"),
        }


def ensure(
    inputs: VfioBindingInputs,
    parts: VfioParts,
    files: NodeFiles,
    host: VfioHost,
    units: HostUnits,
    journal: Journal,
    *,
    before: Sequence[VfioFunction],
) -> Mapping[str, FoundFunction]:
    """Bring all functions to vfio-pci, now and at every boot; what is no longer listed is given back.

    Raises:
        RefusalError: with all reasons at once: a function is not what was named, is in use, or a file that is
            not ours is in the way. Nothing is changed then.
    """
    gone = [old for old in before if old.address not in inputs.addresses]
    found = host.inspect([*inputs.functions, *gone])
    said = [*vfio.problems(inputs.functions, found), *_still_used(gone, found)]
    live = {path: files.read(path) for path in parts.files(inputs)}
    for path, file in live.items():
        if file is not None and _OURS.encode() not in file.content:
            said.append(f"{path} is not ours; move it away")
    if said:
        raise RefusalError(host.place, "; ".join(said), "nothing was changed")
    changed = False
    for path, (content, mode) in parts.files(inputs).items():
        file = live[path]
        if file is not None and (file.sha256, file.mode) == (sha256_of(content.encode()), mode):
            continue
        if before and file is not None and path != vfio.LIST_PATH:
            journal.note(f"{host.place}: {path}: was changed on the host; put back")
        files.write(path, content.encode(), mode=mode, owner=_OWNER)
        changed = True
    releasable = [old for old in gone if vfio.is_it(old, found[old.address])]
    if releasable:
        host.release(releasable)
    state = units.state(vfio.UNIT)
    settled = not vfio.drift(inputs.functions, found)
    if changed or state.stale or not settled or state.active != "active" or not state.is_enabled():
        for line in vfio.drift(inputs.functions, found) if before else ():
            journal.note(f"{host.place}: {line}; bound again")
        units.apply(vfio.UNIT, enabled=True, active=True, restart=True)
    found = host.inspect(inputs.functions)
    left = vfio.drift(inputs.functions, found)
    if left:
        raise RefusalError(
            host.place,
            f"functions are not on vfio-pci after they were bound: {'; '.join(left)}",
            f"see `journalctl -u {vfio.UNIT}` and `dmesg` on the host, then run again",
        )
    return found


def drift(
    inputs: VfioBindingInputs,
    parts: VfioParts,
    files: NodeFiles,
    host: VfioHost,
    units: HostUnits,
) -> tuple[str, ...]:
    """In words, how the host differs from what was made."""
    said = list(vfio.drift(inputs.functions, host.inspect(inputs.functions)))
    for path, (content, _) in parts.files(inputs).items():
        file = files.read(path)
        if file is None:
            said.append(f"{path} is gone")
        elif file.sha256 != sha256_of(content.encode()):
            said.append(f"{path} was changed")
    state = units.state(vfio.UNIT)
    if not state.is_enabled() or state.active != "active":
        said.append(f"{vfio.UNIT} is {state.enabled} and {state.active}")
    return tuple(said)


def remove(inputs: VfioBindingInputs, files: NodeFiles, host: VfioHost, units: HostUnits) -> None:
    """Give all functions back and take the unit away; what is gone is done.

    Raises:
        RefusalError: a virtual machine has one of them. Nothing is changed then.
    """
    found = host.inspect(inputs.functions)
    used = _still_used(inputs.functions, found)
    if used:
        raise RefusalError(host.place, "; ".join(used), "nothing was changed")
    units.remove(vfio.UNIT)
    for path in (vfio.LIST_PATH, UNIT_PATH):
        file = files.read(path)
        if file is not None and _OURS.encode() in file.content:
            files.remove(path)
    host.release([f for f in inputs.functions if vfio.is_it(f, found[f.address])])
    script = files.read(vfio.SCRIPT_PATH)
    if script is not None and _OURS.encode() in script.content:
        files.remove(vfio.SCRIPT_PATH)


def _still_used(
    functions: Sequence[VfioFunction], found: Mapping[str, FoundFunction]
) -> tuple[str, ...]:
    return tuple(
        f"{f.address} is in use ({', '.join(found[f.address].users)}), so it is not given back; end the "
        "virtual machine first"
        for f in functions
        if vfio.is_it(f, found[f.address])
        and found[f.address].driver == vfio.DRIVER
        and found[f.address].users
    )
