"""Stand-ins for `dnf` and `rpm`: the packages of the RHEL family, in the same memory as `apt-get`'s."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping

from lab.hosts.call import Answer, Call
from lab.hosts.faults import PackageManagerLocked
from lab.hosts.nvidia import driver_packages
from lab.hosts.nvidia.driver_faults import PackageGone

CATALOGUE: Mapping[str, str] = {
    "containerd.io": "2.3.1-1.el9",
    "edk2-ovmf": "20241117-2.el9",
    "genisoimage": "1.1.11-48.el9",
    "libvirt-client": "10.10.0-7.el9",
    "libvirt-daemon-kvm": "10.10.0-7.el9",
    "mokutil": "0.6.0-4.el9",
    "nfs-utils": "2.5.4-34.el9",
    "pciutils": "3.7.0-7.el9",
    "psmisc": "23.4-3.el9",
    "qemu-img": "9.1.0-15.el9",
    "qemu-kvm": "9.1.0-15.el9",
    "xorriso": "1.5.4-5.el9",
}
"""Packages that can be installed, in their newest version."""


def run(call: Call) -> Answer:
    """`dnf install|remove|makecache`, `dnf module enable|reset`, `dnf versionlock add|delete|list`."""
    words = [word for word in call.arguments if not word.startswith("-")]
    verb, names = (words[0], words[1:]) if words else ("", [])
    if verb == "needs-restarting":
        return needs_restarting(call)
    if verb not in {"install", "remove", "makecache", "module", "versionlock"}:
        return Answer.error(f"No such command: {verb}. Please use /usr/bin/dnf --help", 1)
    if not call.is_root:
        return Answer.error(
            "Error: This command has to be run with superuser privileges (under the root user on "
            "most systems).",
            1,
        )
    if call.faults.first(PackageManagerLocked):
        return Answer.error(
            "Waiting for process with pid 1193 to finish.\nError: Failed to obtain rpm transaction "
            "lock. Another transaction is in progress.",
            1,
        )
    if verb == "module":
        return _module(call, names)
    if verb == "versionlock":
        return _versionlock(call, names)
    installed: dict[str, str] = call.machine.state.setdefault("packages", {})
    if verb == "remove":
        gone = [name for name in names if installed.pop(name, None)]
        call.machine.note("packages", removed=gone)
        return Answer.out("Complete!")
    return _install(call, names, installed) if verb == "install" else Answer.out("Complete!")


def _install(call: Call, names: list[str], installed: dict[str, str]) -> Answer:
    new: dict[str, str] = {}
    for name in names:
        found = _plain(name) or _of_the_driver(call, name)
        if not found:
            return Answer.error(f"Error: Unable to find a match: {name}", 1)
        new |= {n: version for n, version in found.items() if installed.get(n) != version}
    locked = [
        name for name in new if name in call.machine.state.get("held", []) and name in installed
    ]
    if locked:
        return Answer.error(
            f"Error: Unable to find a match: {locked[0]} (excluded by versionlock)", 1
        )
    then = driver_packages.with_new(call.machine.system, installed, new)
    installed.clear()
    installed.update(then)
    if new:
        call.machine.note("packages", installed=new)
    return Answer.out("Complete!" if new else "Nothing to do.\nComplete!")


def _plain(name: str) -> dict[str, str]:
    package = next((p for p in CATALOGUE if name in {p, f"{p}-{CATALOGUE[p]}"}), None)
    return {package: CATALOGUE[package]} if package else {}


def _of_the_driver(call: Call, wanted: str) -> dict[str, str]:
    """A package of the driver by `NAME` or `NAME-VERSION*`, from the stream that is enabled."""
    if any(wanted.startswith(fault.name) for fault in call.faults.all(PackageGone)):
        return {}
    stream = call.machine.state.get("streams", {}).get("nvidia-driver", "")
    for package in driver_packages.packages("rocky"):
        full = f"{package.name}-{package.version}"
        fits = package.name == wanted or fnmatch.fnmatchcase(full, wanted)
        if not fits or package.stream not in {"", stream}:
            continue
        found = {package.name: package.version}
        return found | dict.fromkeys(package.brings, package.version)
    return {}


def _module(call: Call, words: list[str]) -> Answer:
    verb, *names = words or ("",)
    streams: dict[str, str] = call.machine.state.setdefault("streams", {})
    known = {package.stream for package in driver_packages.packages("rocky")}
    for name in names:
        module, _, stream = name.partition(":")
        if verb == "reset":
            streams.pop(module, None)
        elif module != "nvidia-driver" or stream not in known or call.faults.first(PackageGone):
            return Answer.error(
                f"Error: Problems in request:\nmissing groups or modules: {name}", 1
            )
        elif streams.setdefault(module, stream) != stream:
            return Answer.error(
                "Error: It is not possible to switch enabled streams of a module unless explicitly "
                "enabled via configuration option module_stream_switch.",
                1,
            )
    return Answer.out("Complete!")


def _versionlock(call: Call, words: list[str]) -> Answer:
    verb, *names = words or ("list",)
    held: list[str] = call.machine.state.setdefault("held", [])
    if verb == "list":
        return Answer.out("\n".join(sorted(held)))
    if verb not in {"add", "delete"}:
        return Answer.error(f"Error: versionlock: unknown verb {verb}", 1)
    keep = [name for name in held if name not in names]
    call.machine.state["held"] = sorted({*keep, *(names if verb == "add" else [])})
    return Answer.out("\n".join(names))


def needs_restarting(call: Call) -> Answer:
    """`needs-restarting -r`: 1 when a newer kernel waits for a boot."""
    waits = call.machine.path("/run/reboot-required").exists()
    return Answer.out(
        "Reboot is required." if waits else "Reboot should not be necessary.", int(waits)
    )


def rpm(call: Call) -> Answer:
    """`rpm -q [--qf FORMAT] NAME…` with versions alone as a format; `rpm -qa --qf FORMAT PATTERN…`."""
    if call.arguments[:2] == ("-qa", "--qf"):
        return _all(call, call.arguments[3:])
    rest = [word for word in call.arguments if word != "-q"]
    formatted = False
    while rest and rest[0] in {"--qf", "--queryformat"}:
        formatted, rest = True, rest[2:]
    installed: dict[str, str] = call.machine.state.get("packages", {})
    lines: list[str] = []
    for name in rest:
        version = installed.get(name)
        if version is None:
            lines.append(f"package {name} is not installed")
        else:
            lines.append(version if formatted else f"{name}-{version}.x86_64")
    code = sum(name not in installed for name in rest)
    return Answer.out("\n".join(lines), code)


def _all(call: Call, patterns: tuple[str, ...]) -> Answer:
    """Name, version and architecture of every package whose name fits."""
    installed: dict[str, str] = call.machine.state.get("packages", {})
    return Answer.out(
        "".join(
            f"{name} {version} x86_64\n"
            for name, version in sorted(installed.items())
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        )
    )
