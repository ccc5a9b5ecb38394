"""Stand-ins for `dnf` and `rpm`: the packages of the RHEL family, in the same memory as `apt-get`'s."""

from __future__ import annotations

from collections.abc import Mapping

from lab.hosts.faults import PackageManagerLocked
from lab.hosts.standins.call import Answer, Call

CATALOGUE: Mapping[str, str] = {
    "containerd.io": "2.3.1-1.el9",
    "edk2-ovmf": "20241117-2.el9",
    "genisoimage": "1.1.11-48.el9",
    "libvirt-client": "10.10.0-7.el9",
    "libvirt-daemon-kvm": "10.10.0-7.el9",
    "nfs-utils": "2.5.4-34.el9",
    "pciutils": "3.7.0-7.el9",
    "psmisc": "23.4-3.el9",
    "qemu-img": "9.1.0-15.el9",
    "qemu-kvm": "9.1.0-15.el9",
    "xorriso": "1.5.4-5.el9",
}
"""Packages that can be installed, in their newest version."""


def run(call: Call) -> Answer:
    """`dnf install -y NAME[-VERSION]…`, `dnf remove -y NAME…`."""
    words = [word for word in call.arguments if not word.startswith("-")]
    verb, names = (words[0], words[1:]) if words else ("", [])
    if verb not in {"install", "remove", "makecache"}:
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
    installed: dict[str, str] = call.machine.state.setdefault("packages", {})
    if verb == "remove":
        gone = [name for name in names if installed.pop(name, None)]
        call.machine.note("packages", removed=gone)
        return Answer.out("Complete!")
    new: dict[str, str] = {}
    for name in names:
        package = next((p for p in CATALOGUE if name in {p, f"{p}-{CATALOGUE[p]}"}), None)
        if package is None:
            return Answer.error(f"Error: Unable to find a match: {name}", 1)
        if installed.get(package) != CATALOGUE[package]:
            new[package] = CATALOGUE[package]
    installed.update(new)
    if new:
        call.machine.note("packages", installed=new)
    return Answer.out("Complete!" if new else "Nothing to do.\nComplete!")


def rpm(call: Call) -> Answer:
    """`rpm -q [--qf FORMAT] NAME…`: only `%{VERSION}-%{RELEASE}` as a format."""
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
