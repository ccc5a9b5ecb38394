"""Stand-ins that tell what is installed: `qemu-system-x86_64 --version`, `dpkg-query`, `df`.

Sources: qemu(1), dpkg-query(1) (`--show`, `--showformat`, exit status 1 when a pattern fits nothing),
df(1) and POSIX (`-P`).
"""

from __future__ import annotations

import fnmatch
import re

from lab.hosts.call import Answer, Call
from lab.hosts.hardware.hardware_faults import DiskNearlyFull, HostDriver

_QEMU_PACKAGE = "qemu-system-x86"
_NOT_FOUND = 127
_DISK_GIB = 894
_FREE_GIB = 812
_KIB_IN_GIB = 2**20
_FIELD = re.compile(r"\$\{([A-Za-z:-]+)\}")


def qemu(call: Call) -> Answer:
    """`qemu-system-x86_64`: its version, if the package is installed."""
    version = _packages(call).get(_QEMU_PACKAGE)
    if version is None:
        return Answer.error(f"sh: 1: {call.name}: not found", _NOT_FOUND)
    if call.arguments != ("--version",):
        return Answer.error(
            f"{call.name}: no virtual machine can be started on a simulated host", 1
        )
    upstream = version.partition(":")[2].partition("+")[0]
    return Answer.out(
        f"QEMU emulator version {upstream} (Debian {version})\n"
        "Copyright (c) 2003-2025 Fabrice Bellard and the QEMU Project developers"
    )


def dpkg_query(call: Call) -> Answer:
    """`dpkg-query --show`: a line for each installed package whose name fits a pattern."""
    if call.arguments == ("--version",):
        return Answer.out("dpkg-query (stand-in of a simulated host)")
    form, show, patterns = "${binary:Package}\\t${Version}\\n", False, list[str]()
    rest = list(call.arguments)
    while rest:
        argument = rest.pop(0)
        if argument in {"-W", "--show"}:
            show = True
        elif argument.startswith(("--showformat=", "-f=")):
            form = argument.partition("=")[2]
        elif argument in {"-f", "--showformat"} and rest:
            form = rest.pop(0)
        elif argument.startswith("-"):
            return Answer.error(f"dpkg-query: error: unknown option {argument}", 2)
        else:
            patterns.append(argument)
    if not show:
        return Answer.error("dpkg-query: error: need an action option", 2)
    out, errors = "", ""
    packages = _packages(call)
    for pattern in patterns or ["*"]:
        found = sorted(name for name in packages if fnmatch.fnmatchcase(name, pattern))
        if not found:
            errors += f"dpkg-query: no packages found matching {pattern}\n"
        for name in found:
            out += _shown(form, name, packages[name])
    return Answer(1 if errors else 0, stdout=out, stderr=errors)


def _shown(form: str, name: str, version: str) -> str:
    fields = {
        "binary:Package": name,
        "Package": name,
        "Version": version,
        "db:Status-Abbrev": "ii ",
        "Status": "install ok installed",
        "db:Status-Status": "installed",
    }
    text = _FIELD.sub(lambda found: fields.get(found.group(1), ""), form)
    return text.replace("\\t", "\t").replace("\\n", "\n")


def _packages(call: Call) -> dict[str, str]:
    installed: dict[str, str] = dict(call.machine.state.get("packages", {}))
    for fault in call.faults.all(HostDriver):
        if fault.driver == "nvidia":
            installed["nvidia-driver-570"] = "570.195.03-0ubuntu0.24.04.1"
            installed["nvidia-dkms-570"] = "570.195.03-0ubuntu0.24.04.1"
    return installed


def df(call: Call) -> Answer:
    """`df -P`: one file system holds everything."""
    flags = "".join(a[1:] for a in call.arguments if a.startswith("-"))
    paths = [a for a in call.arguments if not a.startswith("-")] or ["/"]
    if set(flags) - set("Pkh"):
        return Answer.error(f"df: invalid option -- '{min(set(flags) - set('Pkh'))}'", 1)
    lines = ["Filesystem     1024-blocks      Used Available Capacity Mounted on"]
    errors = ""
    nearly_full = call.faults.first(DiskNearlyFull)
    free = _FREE_GIB if nearly_full is None else nearly_full.free_gib
    used = _DISK_GIB - free
    for path in paths:
        if not call.machine.path(path if path.startswith("/") else f"{call.cwd}/{path}").exists():
            errors += f"df: {path}: No such file or directory\n"
            continue
        lines.append(
            f"/dev/sda2        {_DISK_GIB * _KIB_IN_GIB} {used * _KIB_IN_GIB} {free * _KIB_IN_GIB} "
            f"{round(100 * used / _DISK_GIB):>7}% /"
        )
    return Answer(1 if errors else 0, "\n".join(lines) + "\n" if len(lines) > 1 else "", errors)
