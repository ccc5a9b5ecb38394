"""What a simulated machine's sources offer, and what it has installed."""

from collections.abc import Iterable, Iterator, Mapping

from lab.hosts.call import Call
from lab.hosts.faults import PackageGone
from lab.hosts.machine import Machine
from lab.hosts.packages.catalogue import CATALOGUE, FABRIC_MANAGER, driver_packages, of_the_driver


def plain(system: str) -> Iterator[tuple[str, str]]:
    """The packages beside those of the driver, in their newest version."""
    return ((name, versions[0]) for name, versions in CATALOGUE[system].items())


def offers(call: Call, name: str) -> tuple[str, ...]:
    """All versions of a package that the machine's sources have, newest first."""
    gone = [fault.name for fault in call.faults.all(PackageGone) if name.startswith(fault.name)]
    if any(gone) or not _has_source(call.machine, name):
        return ()
    versions = CATALOGUE[call.machine.system].get(name)
    if versions is not None or gone:
        return tuple(versions or ())
    found = [p.version for p in driver_packages(call.machine.system) if p.name == name]
    pinned, version = FABRIC_MANAGER
    return tuple(sorted(found, key=lambda one: (name, one) != (pinned, version)))


def _has_source(machine: Machine, name: str) -> bool:
    site = next((where for sign, where in CATALOGUE["sites"].items() if sign in name), None)
    folder = machine.path("/etc/apt/sources.list.d")
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return site is None or any(site in file.read_text() for file in files)


def with_new(machine: Machine, new: Mapping[str, str]) -> dict[str, str]:
    """What a machine would have after these were installed: those that they conflict with go."""
    then = {**machine.packages, **new}
    taken = {p.owns for p in of_the_driver(machine.system, new)} - {""}
    for package in of_the_driver(machine.system, machine.packages):
        if package.owns in taken and package.name not in new:
            then.pop(package.name, None)
    return then


def install(machine: Machine, new: Mapping[str, str]) -> None:
    then = with_new(machine, new)
    machine.packages.clear()
    machine.packages.update(then)
    if new:
        machine.note("packages", installed=new)


def remove(machine: Machine, names: Iterable[str]) -> list[str]:
    """Gives those that were there."""
    gone = [name for name in names if machine.packages.pop(name, None) is not None]
    if gone:
        machine.note("packages", removed=gone)
    return gone


def hold(machine: Machine, names: Iterable[str], *, on: bool) -> None:
    machine.state["held"] = sorted({*machine.held} - {*names} | ({*names} if on else set()))
