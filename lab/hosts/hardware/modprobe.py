"""Stand-ins for `modprobe`, `lsmod`, `modinfo`, `mokutil`: VFIO's modules load, NVIDIA's where it is."""

import os

from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.faults import GpuInUse, OpenKernelModule, SecureBoot
from lab.hosts.hardware.kernel import MODULES, NOUVEAU
from lab.hosts.machine import FILES
from lab.hosts.nvidia import driver
from lab.hosts.program import program

_KNOWN = frozenset((FILES / "system/modules").read_text().split())
"""Modules of the kernel; the last rows are what a node of Kubernetes in a user namespace needs."""


@program(
    "modprobe",
    flags="-r -a",
    unknown="modprobe: invalid option -- '{letters}'",
    version="kmod version 31",
)
def modprobe(call: Call) -> Answer:
    remove, kernel = call.has("-r"), None
    for name in (word.replace("-", "_") for word in call.words):
        if name == driver.MODULE and driver.module(call.machine) is not None:
            problem = _nvidia_problem(call, remove=remove)
            if problem is not None:
                raise RefusedError(f"modprobe: ERROR: {problem}")
        elif name not in _KNOWN:
            text = f"Module {name} not found in directory /lib/modules/{os.uname().release}"
            raise RefusedError(f"modprobe: FATAL: {text}")
        kernel = call.control.kernel
        if not call.is_root or (not remove and kernel.refuses(name)):
            verb = "remove" if remove else "insert"
            raise RefusedError(
                f"modprobe: ERROR: could not {verb} '{name}': Operation not permitted"
            )
        (kernel.unload if remove else kernel.load)(name)
        call.control.watch()
    if kernel is None:
        raise RefusedError("modprobe: ERROR: missing parameters. See -h.")
    return Answer()


def _nvidia_problem(call: Call, *, remove: bool) -> str | None:
    """Why NVIDIA's module is not put in or taken out."""
    if remove:
        held = call.faults.first(GpuInUse) or driver.fabric_holds(call.machine)
        return "Module nvidia is in use." if held else None
    nouveau = call.control.kernel.is_loaded(NOUVEAU)
    return driver.refusal(call.machine, call.faults, nouveau=nouveau)


@program("lsmod")
def lsmod(call: Call) -> Answer:
    """`lsmod`: from the host's own list, which also covers /proc/modules where there is one."""
    lines = ["Module                  Size  Used by"]
    for line in call.machine.path(MODULES).read_text().splitlines():
        name, size, count, users, *_ = line.split()
        by = "" if users == "-" else f" {users.rstrip(',')}"
        lines.append(f"{name:<19} {size:>8}  {count}{by}")
    return Answer.out("\n".join(lines))


@program("modinfo", values="-F")
def modinfo(call: Call) -> Answer:
    """`modinfo [-F FIELD] nvidia`."""
    module = driver.module(call.machine)
    if call.words != [driver.MODULE] or module is None:
        raise RefusedError(f"modinfo: ERROR: Module {call.verb} not found.")
    is_open = call.faults.first(OpenKernelModule) is not None
    values = {
        "filename": "/lib/modules/updates/dkms/nvidia.ko",
        "version": module.version,
        "license": "Dual MIT/GPL" if is_open else module.licence,
        "signer": "Canonical Ltd. Kernel Module Signing" if module.is_signed else "",
    }
    field = call.value("-F")
    if field:
        return Answer.out(values.get(field, ""))
    return Answer.out("".join(f"{key}:{value:>20}\n" for key, value in values.items()))


@program("mokutil", of="mokutil", flags="--sb-state")
def mokutil(call: Call) -> Answer:
    """`mokutil --sb-state`."""
    return Answer.out(f"SecureBoot {'enabled' if call.faults.first(SecureBoot) else 'disabled'}")
