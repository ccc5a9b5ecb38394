"""Stand-ins for `apt-get`, `apt-mark`, `apt-cache`, `dpkg` and `dpkg-query`.

Sources: apt's words where it finds dpkg interrupted; dpkg(1), `--audit` ("packages that have been installed
only partially on your system") and `--configure -a`; dpkg-query(1) (exit status 1 when a pattern fits
nothing).
"""

import fnmatch
import re
from collections.abc import Mapping

from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.faults import (
    HoldsLost,
    HostDriver,
    PackageInstallationCutOff,
    PackageManagerLocked,
)
from lab.hosts.packages import archive, scripts
from lab.hosts.packages.catalogue import Part, of_the_driver
from lab.hosts.program import program

_ERROR = 100
_CHANGE_HELD = "--allow-change-held-packages"
_FINISHED = "dpkg_finished"
_NOT_ROOT = (
    "E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission denied)\n"
    "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), are you root?"
)
_LOCKED = (
    "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1193 "
    "(unattended-upgr)\nN: Be aware that removing the lock file is not a solution and may "
    "break your system.\nE: Unable to acquire the dpkg frontend lock "
    "(/var/lib/dpkg/lock-frontend), is another process using it?"
)
_INTERRUPTED = (
    "E: dpkg was interrupted, you must manually run 'sudo dpkg --configure -a' to correct the "
    "problem."
)
_HALF = (
    "The following packages have been unpacked but not yet configured.\n"
    "They must be configured using dpkg --configure or the configure\n"
    "menu option in dselect for them to work:\n qemu-utils           QEMU utilities"
)


@program(
    "apt-get",
    on="ubuntu",
    flags=f"-y -q -qq --no-install-recommends {_CHANGE_HELD} --allow-downgrades",
    values="-o",
    unknown="E: Command line option '{letters}' [from {option}] is not understood in combination with the "
    "other options.",
    unknown_exit=_ERROR,
    version="apt 2.8.3 (amd64)",
    root=_NOT_ROOT,
    root_exit=_ERROR,
)
def get(call: Call) -> Answer:
    verb, names = call.verb, call.words[1:]
    if verb not in {"update", "install", "remove"}:
        raise RefusedError(f"E: Invalid operation {verb}", _ERROR)
    if call.faults.first(PackageManagerLocked):
        raise RefusedError(_LOCKED, _ERROR)
    if verb != "update" and _cut_off(call):
        raise RefusedError(_INTERRUPTED, _ERROR)
    if verb == "update":
        return Answer.out("Reading package lists...")
    return _install(call, names) if verb == "install" else _remove(call, names)


def _install(call: Call, names: list[str]) -> Answer:
    installed = call.machine.packages
    wanted: dict[str, str] = {}
    for name in names:
        package, _, version = name.partition("=")
        there = archive.offers(call, package)
        if not there:
            raise RefusedError(f"E: Unable to locate package {package}", _ERROR)
        fitting = fnmatch.filter(there, version) if version else list(there)
        if not fitting:
            raise RefusedError(f"E: Version '{version}' for '{package}' was not found", _ERROR)
        has = installed.get(package, "")
        wanted[package] = has if has in fitting else fitting[0]
    new = {name: version for name, version in wanted.items() if installed.get(name) != version}
    held = [name for name in new if name in call.machine.held]
    if held and not call.has(_CHANGE_HELD):
        raise RefusedError(
            f"The following held packages will be changed:\n  {' '.join(held)}\n"
            "E: Held packages were changed and -y was used without --allow-change-held-packages.",
            _ERROR,
        )
    _require_one_driver(archive.with_new(call.machine, new))
    text = "Reading package lists...\nBuilding dependency tree...\n"
    for name in sorted(set(wanted) - set(new)):
        text += f"{name} is already the newest version ({wanted[name]}).\n"
    for name, version in sorted(new.items()):
        text += f"Setting up {name} ({version}) ...\n"
    upgraded = len(set(new) & set(installed))
    archive.install(call.machine, new)
    scripts.installed(call.machine, new)
    return Answer.out(
        f"{text}{upgraded} upgraded, {len(new) - upgraded} newly installed, 0 to remove."
    )


def _require_one_driver(then: Mapping[str, str]) -> None:
    """Modules and libraries of the driver depend on programs of the very same driver."""
    there = list(of_the_driver("ubuntu", then))
    tools = {p.driver for p in there if p.part is Part.USERLAND}
    for package in there:
        if package.part in (Part.PREBUILT, Part.DKMS) and tools and package.driver not in tools:
            raise RefusedError(
                f"The following packages have unmet dependencies:\n {package.name} : Depends: "
                f"nvidia-kernel-common (>= {package.driver}) but {tools.pop()} is to be installed\n"
                "E: Unable to correct problems, you have held broken packages.",
                _ERROR,
            )


def _remove(call: Call, names: list[str]) -> Answer:
    for name in names:
        if name not in call.machine.packages and not archive.offers(call, name):
            raise RefusedError(f"E: Unable to locate package {name}", _ERROR)
    gone = archive.remove(call.machine, names)
    scripts.removed(call.machine, gone)
    lines = [f"Removing {name} ...\n" for name in gone]
    return Answer.out("".join(lines) + f"0 upgraded, 0 newly installed, {len(gone)} to remove.\n")


@program("apt-mark", on="ubuntu")
def mark(call: Call) -> Answer:
    """`apt-mark hold|unhold|showhold`."""
    verb, names = call.verb, call.words[1:]
    if call.faults.first(HoldsLost):
        call.machine.held.clear()
    if verb == "showhold":
        return Answer.out("\n".join(call.machine.held))
    if verb not in {"hold", "unhold"}:
        raise RefusedError(f"E: Invalid operation {verb}", _ERROR)
    if not call.is_root:
        raise RefusedError("E: Could not create temporary file - are you root?", _ERROR)
    known = [n for n in names if n in call.machine.packages or archive.offers(call, n)]
    archive.hold(call.machine, known, on=verb == "hold")
    # apt-mark leaves out what it does not know, and says so.
    unknown = [f"E: Unable to locate package {name}\n" for name in names if name not in known]
    return Answer(_ERROR if unknown else 0, stderr="".join(unknown))


@program("apt-cache", on="ubuntu")
def apt_cache(call: Call) -> Answer:
    """`apt-cache madison NAME…`: the versions that the host's sources have."""
    if call.verb != "madison":
        raise RefusedError(f"E: Invalid operation {call.verb}", _ERROR)
    lines = [
        f"{name:>10} | {version:>10} | http://repository.test noble/main amd64 Packages"
        for name in call.words[1:]
        for version in archive.offers(call, name)
    ]
    return Answer.out("\n".join(lines))


def _cut_off(call: Call) -> bool:
    """Whether an installation was cut off and not finished since."""
    finished: list[str] = call.machine.state.get(_FINISHED, [])
    faults = call.faults.all(PackageInstallationCutOff)
    return any(fault.token not in finished for fault in faults)


@program("dpkg", on="ubuntu", unknown=None)
def dpkg(call: Call) -> Answer:
    match call.arguments:
        case ("--audit",):
            return Answer.out(_HALF if _cut_off(call) else "")
        case ("--print-architecture",):
            return Answer.out("amd64")
        case ("--configure", "-a"):
            return _configure(call)
    raise RefusedError("dpkg: error: need an action option that this stand-in knows", 2)


def _configure(call: Call) -> Answer:
    if not call.is_root:
        raise RefusedError("dpkg: error: requested operation requires superuser privilege", 2)
    if call.faults.first(PackageManagerLocked):
        text = "dpkg: error: dpkg frontend lock was locked by another process with pid 1193"
        raise RefusedError(text, 2)
    if not _cut_off(call):
        return Answer()
    tokens = [fault.token for fault in call.faults.all(PackageInstallationCutOff)]
    call.machine.state[_FINISHED] = tokens
    call.machine.note("packages", finished=True)
    return Answer.out("Setting up qemu-utils (1:10.1.0+ds-5ubuntu2) ...")


@program(
    "dpkg-query",
    on="ubuntu",
    flags="-W --show",
    values="-f --showformat",
    unknown="dpkg-query: error: unknown option {option}",
    unknown_exit=2,
)
def query(call: Call) -> Answer:
    """`dpkg-query --show`: a line for each installed package whose name fits a pattern."""
    if not call.has("-W", "--show"):
        raise RefusedError("dpkg-query: error: need an action option", 2)
    form = call.value("-f", "--showformat") or "${binary:Package}\\t${Version}\\n"
    out, errors = "", ""
    packages = dict(call.machine.packages)
    if any(fault.driver == "nvidia" for fault in call.faults.all(HostDriver)):
        found = ("nvidia-driver-570", "nvidia-dkms-570")
        packages |= dict.fromkeys(found, "570.195.03-0ubuntu0.24.04.1")
    for pattern in call.words or ["*"]:
        names = fnmatch.filter(sorted(packages), pattern)
        if not names:
            errors += f"dpkg-query: no packages found matching {pattern}\n"
        out += "".join(_shown(form, name, packages[name]) for name in names)
    return Answer(1 if errors else 0, stdout=out, stderr=errors)


def _shown(form: str, name: str, version: str) -> str:
    fields = {
        "binary:Package": name,
        "Package": name,
        "Version": version,
        "db:Status-Abbrev": "ii ",
        "db:Status-Status": "installed",
    }
    text = re.sub(r"\$\{([A-Za-z:-]+)\}", lambda found: fields.get(found[1], ""), form)
    return text.replace("\\t", "\t").replace("\\n", "\n")
