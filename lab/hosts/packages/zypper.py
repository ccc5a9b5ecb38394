"""Stand-in for `zypper`: packages of SLES.

Exit status after zypper(8): 104 for a package that is not known, 7 while another process has the lock, 102
from `needs-rebooting`.
"""

from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.faults import PackageManagerLocked
from lab.hosts.packages import archive
from lab.hosts.packages.catalogue import driver_packages
from lab.hosts.program import program

_UNKNOWN, _LOCKED, _NEEDS_REBOOT, _USAGE, _ROOT = 104, 7, 102, 2, 5
_IS_LOCKED = (
    "System management is locked by the application with pid 1193 (zypper).\n"
    "Close this application before trying again."
)


@program(
    "zypper",
    on="sles",
    flags="--quiet --non-interactive --details --match-exact --auto-agree-with-licenses --allow-downgrade",
)
def zypper(call: Call) -> Answer:
    """`zypper install|remove NAME[=VERSION]…`, `addlock|removelock|locks`, `search`, `needs-rebooting`."""
    verb, names, machine = call.verb, call.words[1:], call.machine
    if verb == "needs-rebooting":
        waits = machine.path("/run/reboot-required").exists()
        said = "Reboot is required." if waits else "Reboot is probably not necessary."
        return Answer.out(said, _NEEDS_REBOOT if waits else 0)
    if verb == "locks":
        return Answer.out("\n".join(machine.held))
    if verb == "search":
        return _search(call, names)
    if verb not in {"install", "remove", "addlock", "removelock"}:
        raise RefusedError(f"Unknown command '{verb}'", _USAGE)
    if not call.is_root:
        raise RefusedError("Root privileges are required to run this command.", _ROOT)
    if call.faults.first(PackageManagerLocked):
        raise RefusedError(_IS_LOCKED, _LOCKED)
    if verb == "install":
        return _install(call, names)
    if verb == "remove":
        archive.remove(machine, names)
        return Answer.out("Done.")
    archive.hold(machine, names, on=verb == "addlock")
    return Answer.out("Specified locks have been successfully changed.")


def _search(call: Call, names: list[str]) -> Answer:
    """A table of all versions; NVIDIA's packages alone."""
    driver = {package.name for package in driver_packages("sles")}
    rows = [
        f"   | {name} | package | {version} | x86_64 | cuda-sles15"
        for name in names
        if name in driver
        for version in archive.offers(call, name)
    ]
    if not rows:
        raise RefusedError("No matching items found.", _UNKNOWN)
    return Answer.out("\n".join(["S  | Name | Type | Version | Arch | Repository", *rows]))


def _install(call: Call, names: list[str]) -> Answer:
    new: dict[str, str] = {}
    for wanted in names:
        name, _, version = wanted.partition("=")
        # A version without its release stands for all releases of it.
        fits = [
            one for one in archive.offers(call, name) if version in ("", one, one.partition("-")[0])
        ]
        if not fits:
            raise RefusedError(f"Package '{wanted}' not found.", _UNKNOWN)
        if call.machine.packages.get(name) != fits[0]:
            new[name] = fits[0]
    held = [name for name in new if name in call.machine.held]
    if held:
        raise RefusedError(f"Problem: the package {held[0]} is locked by the user", 4)
    archive.install(call.machine, new)
    return Answer.out("Done." if new else "Nothing to do.")
