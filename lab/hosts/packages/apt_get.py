"""Stand-in for `apt-get`: records what is installed; knows a small catalogue of packages."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping

from lab.hosts.call import Answer, Call
from lab.hosts.faults import PackageManagerLocked
from lab.hosts.nvidia import driver_packages
from lab.hosts.nvidia.driver_faults import PackageGone
from lab.hosts.nvidia.driver_packages import Part
from lab.hosts.packages import dpkg
from lab.hosts.usernetes import rootless_packages
from lab.hosts.usernetes.rootless_faults import HoldsLost

CATALOGUE: Mapping[str, tuple[str, ...]] = {
    "containerd": ("1.7.28-0ubuntu1",),
    "containerd.io": ("2.3.1-1", "2.2.4-1"),
    "genisoimage": ("9:1.1.11-3.5",),
    "kubelet": ("1.36.3-1.1", "1.35.6-1.1"),
    "libvirt-clients": ("10.0.0-2ubuntu8.9",),
    "libvirt-daemon-system": ("10.0.0-2ubuntu8.9",),
    "mokutil": ("0.6.0-2build3",),
    "nfs-common": ("1:2.6.4-3ubuntu5",),
    "ovmf": ("2024.02-2ubuntu0.3",),
    "pciutils": ("1:3.10.0-2build1",),
    "psmisc": ("23.7-1build1",),
    "qemu-system-x86": ("1:10.1.0+ds-5ubuntu2",),
    "qemu-utils": ("1:10.1.0+ds-5ubuntu2",),
    "xorriso": ("1:1.5.6-1.1ubuntu3",),
    **rootless_packages.CATALOGUE,
}
"""Packages that can be installed, with their versions, newest first."""

# On HGX machines the fabric manager is pinned to the one of their service VM, so that it comes first.
_FIRST = {"nvidia-fabricmanager-595": "595.58.03-1"}

_FLAGS = {"-y", "--yes", "--assume-yes", "-q", "-qq", "--no-install-recommends"} | {
    "--allow-change-held-packages",
    "--allow-downgrades",
    "--only-upgrade",
}
_ERROR = 100


def run(call: Call) -> Answer:
    if call.arguments[:1] in {("--version",), ("-v",)}:
        return Answer.out("apt 2.8.3 (amd64)\n(stand-in of a simulated host)")
    words: list[str] = []
    rest = list(call.arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "-o" and rest:
            rest.pop(0)
        elif argument.startswith("-") and argument not in _FLAGS:
            shown = argument.lstrip("-")
            return Answer.error(
                f"E: Command line option '{shown}' [from {argument}] is not understood in "
                "combination with the other options.",
                _ERROR,
            )
        elif not argument.startswith("-"):
            words.append(argument)
    verb, names = (words[0], words[1:]) if words else ("", [])
    if verb not in {"update", "install", "remove", "purge"}:
        return Answer.error(f"E: Invalid operation {verb}", _ERROR)
    if not call.is_root:
        return Answer.error(
            "E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission "
            "denied)\nE: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), "
            "are you root?",
            _ERROR,
        )
    if call.faults.first(PackageManagerLocked):
        return Answer.error(
            "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1193 "
            "(unattended-upgr)\nN: Be aware that removing the lock file is not a solution and may "
            "break your system.\nE: Unable to acquire the dpkg frontend lock "
            "(/var/lib/dpkg/lock-frontend), is another process using it?",
            _ERROR,
        )
    if verb != "update" and dpkg.interrupted(call.machine, call.faults):
        return Answer.error(dpkg.INTERRUPTED, _ERROR)
    if verb == "update":
        return Answer.out("Reading package lists...")
    return _install(call, names) if verb == "install" else _remove(call, names)


def _install(call: Call, names: list[str]) -> Answer:
    wanted: dict[str, str] = {}
    for name in names:
        package, _, version = name.partition("=")
        there = versions(call, package)
        if not there:
            return Answer.error(f"E: Unable to locate package {package}", _ERROR)
        fitting = fnmatch.filter(there, version) if version else list(there)
        if not fitting:
            return Answer.error(f"E: Version '{version}' for '{package}' was not found", _ERROR)
        has = _installed(call).get(package, "")
        wanted[package] = has if has in fitting else fitting[0]
    installed = _installed(call)
    new = {name: version for name, version in wanted.items() if installed.get(name) != version}
    then = driver_packages.with_new("ubuntu", installed, new)
    problem = _held(call, new) or _unmet(then)
    if problem:
        return Answer.error(problem, _ERROR)
    text = "Reading package lists...\nBuilding dependency tree...\n"
    for name in sorted(set(wanted) - set(new)):
        text += f"{name} is already the newest version ({wanted[name]}).\n"
    for name, version in sorted(new.items()):
        text += f"Setting up {name} ({version}) ...\n"
    upgraded = len(set(new) & set(installed))
    text += f"{upgraded} upgraded, {len(new) - upgraded} newly installed, 0 to remove.\n"
    installed.clear()
    installed.update(then)
    if new:
        rootless_packages.installed(call.machine, new)
        call.machine.note("packages", installed=new)
    return Answer.out(text)


def versions(call: Call, name: str) -> tuple[str, ...]:
    """All versions of a package that the host's sources have, newest first."""
    if not rootless_packages.has_source(call.machine, name):
        return ()
    if any(name.startswith(fault.name) for fault in call.faults.all(PackageGone)):
        driver: tuple[str, ...] = ()
    else:
        found = driver_packages.packages("ubuntu")
        driver = tuple(package.version for package in found if package.name == name)
    first = _FIRST.get(name)
    if first in driver:
        driver = (first, *(version for version in driver if version != first))
    gone = any(f.name and name.startswith(f.name) for f in call.faults.all(PackageGone))
    return () if gone else CATALOGUE.get(name, driver)


def _held(call: Call, new: Mapping[str, str]) -> str | None:
    held = [name for name in new if name in call.machine.state.get("held", [])]
    if not held or "--allow-change-held-packages" in call.arguments:
        return None
    return (
        f"The following held packages will be changed:\n  {' '.join(held)}\n"
        "E: Held packages were changed and -y was used without --allow-change-held-packages."
    )


def _unmet(then: Mapping[str, str]) -> str | None:
    """Modules and libraries of the driver depend on programs of the very same driver."""
    there = list(driver_packages.installed("ubuntu", then))
    tools = {p.driver for p in there if p.part is Part.USERLAND}
    for package in there:
        if package.part in (Part.PREBUILT, Part.DKMS) and tools and package.driver not in tools:
            return (
                f"The following packages have unmet dependencies:\n {package.name} : Depends: "
                f"nvidia-kernel-common (>= {package.driver}) but {tools.pop()} is to be installed\n"
                "E: Unable to correct problems, you have held broken packages."
            )
    return None


def _remove(call: Call, names: list[str]) -> Answer:
    installed = _installed(call)
    unknown = [name for name in names if not versions(call, name) and name not in installed]
    if unknown:
        return Answer.error(f"E: Unable to locate package {unknown[0]}", _ERROR)
    gone = [name for name in names if installed.pop(name, None) is not None]
    if gone:
        rootless_packages.removed(call.machine, gone)
        call.machine.note("packages", removed=gone)
    lines = [f"Removing {name} ...\n" for name in gone]
    return Answer.out("".join(lines) + f"0 upgraded, 0 newly installed, {len(gone)} to remove.\n")


def mark(call: Call) -> Answer:
    """`apt-mark hold|unhold|showhold`."""
    verb, *names = call.arguments or ("",)
    held: list[str] = call.machine.state.setdefault("held", [])
    if call.faults.first(HoldsLost):
        held.clear()
    if verb == "showhold":
        return Answer.out("\n".join(sorted(held)))
    if verb not in {"hold", "unhold"}:
        return Answer.error(f"E: Invalid operation {verb}", _ERROR)
    if not call.is_root:
        return Answer.error("E: Could not create temporary file - are you root?", _ERROR)
    unknown = [n for n in names if n not in _installed(call) and not versions(call, n)]
    # apt-mark leaves out what it does not know, and says so.
    errors = "".join(f"E: Unable to locate package {name}\n" for name in unknown)
    names = [name for name in names if name not in unknown]
    keep = [name for name in held if name not in names]
    call.machine.state["held"] = sorted({*keep, *(names if verb == "hold" else [])})
    return Answer(_ERROR if unknown else 0, stderr=errors)


def _installed(call: Call) -> dict[str, str]:
    packages: dict[str, str] = call.machine.state.setdefault("packages", {})
    return packages
