"""Stand-in for `zypper`: packages of SLES, in the same memory as `apt-get`'s.

Exit status after zypper(8): 104 for a package that is not known, 7 while another process has the lock, 102
from `needs-rebooting`.
"""

from __future__ import annotations

from collections.abc import Mapping

from lab.hosts.call import Answer, Call
from lab.hosts.faults import PackageManagerLocked
from lab.hosts.nvidia import driver_packages
from lab.hosts.nvidia.driver_faults import PackageGone

CATALOGUE: Mapping[str, str] = {
    "mokutil": "0.5.0-1",
    "nfs-client": "2.6.4-1",
    "pciutils": "3.13.0-1",
    "psmisc": "23.7-1",
}
"""Packages that can be installed, beside those of the driver."""
_UNKNOWN, _LOCKED, _NEEDS_REBOOT, _USAGE, _ROOT = 104, 7, 102, 2, 5


def run(call: Call) -> Answer:
    """`zypper install|remove NAME[=VERSION]…`, `addlock|removelock|locks`, `needs-rebooting`, `refresh`."""
    words = [word for word in call.arguments if not word.startswith("-")]
    verb, names = (words[0], words[1:]) if words else ("", [])
    if verb == "needs-rebooting":
        waits = call.machine.path("/run/reboot-required").exists()
        return Answer.out(
            "Reboot is required." if waits else "Reboot is probably not necessary.",
            _NEEDS_REBOOT if waits else 0,
        )
    if verb == "locks":
        return Answer.out("\n".join(call.machine.state.get("held", [])))
    if verb == "search":
        return _search(call, names)
    if verb not in {"install", "remove", "addlock", "removelock", "refresh"}:
        return Answer.error(f"Unknown command '{verb}'", _USAGE)
    if not call.is_root:
        return Answer.error("Root privileges are required to run this command.", _ROOT)
    if call.faults.first(PackageManagerLocked):
        return Answer.error(
            "System management is locked by the application with pid 1193 (zypper).\n"
            "Close this application before trying again.",
            _LOCKED,
        )
    if verb in {"addlock", "removelock"}:
        held = {*call.machine.state.get("held", [])} - {*names}
        call.machine.state["held"] = sorted(held | ({*names} if verb == "addlock" else set()))
        return Answer.out("Specified locks have been successfully changed.")
    installed: dict[str, str] = call.machine.state.setdefault("packages", {})
    if verb == "remove":
        gone = [name for name in names if installed.pop(name, None)]
        call.machine.note("packages", removed=gone)
    return _install(call, names, installed) if verb == "install" else Answer.out("Done.")


def _search(call: Call, names: list[str]) -> Answer:
    """A table of all versions; NVIDIA's packages alone."""
    gone = tuple(fault.name for fault in call.faults.all(PackageGone))
    rows = [
        f"   | {p.name} | package | {p.version} | x86_64 | cuda-sles15"
        for p in driver_packages.packages("sles")
        if p.name in names and not (gone and p.name.startswith(gone))
    ]
    if not rows:
        return Answer.error("No matching items found.", _UNKNOWN)
    return Answer.out("\n".join(["S  | Name | Type | Version | Arch | Repository", *rows]))


def _install(call: Call, names: list[str], installed: dict[str, str]) -> Answer:
    new: dict[str, str] = {}
    for wanted in names:
        name, _, version = wanted.partition("=")
        found = CATALOGUE.get(name) or _of_the_driver(call, name, version)
        if found is None:
            return Answer.error(f"Package '{wanted}' not found.", _UNKNOWN)
        if installed.get(name) != found:
            new[name] = found
    held = [name for name in new if name in call.machine.state.get("held", [])]
    if held:
        return Answer.error(f"Problem: the package {held[0]} is locked by the user", 4)
    then = driver_packages.with_new("sles", installed, new)
    installed.clear()
    installed.update(then)
    if new:
        call.machine.note("packages", installed=new)
    return Answer.out("Nothing to do." if not new else "Done.")


def _of_the_driver(call: Call, name: str, version: str) -> str | None:
    if any(name.startswith(fault.name) for fault in call.faults.all(PackageGone)):
        return None
    for package in driver_packages.packages("sles"):
        # A version without its release stands for all releases of it.
        plain = package.version.partition("-")[0]
        if package.name == name and version in ("", plain, package.version):
            return package.version
    return None
