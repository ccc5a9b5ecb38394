"""Stand-ins for `modinfo` (kmod) and `mokutil`: NVIDIA's module on the disk, Secure Boot."""

from __future__ import annotations

from lab.hosts import driver
from lab.hosts.driver_faults import SecureBoot
from lab.hosts.rootless_faults import OpenKernelModule
from lab.hosts.standins.call import Answer, Call


def modinfo(call: Call) -> Answer:
    """`modinfo [-F FIELD] nvidia`."""
    words = list(call.arguments)
    field = ""
    if words[:1] == ["-F"] and len(words) > 1:
        field, words = words[1], words[2:]
    name = words[0] if words else ""
    module = driver.module(call.machine)
    if name != driver.MODULE or module is None:
        return Answer.error(f"modinfo: ERROR: Module {name} not found.", 1)
    is_open = call.faults.first(OpenKernelModule) is not None
    values = {
        "filename": "/lib/modules/updates/dkms/nvidia.ko",
        "version": module.version,
        "license": "Dual MIT/GPL" if is_open else module.licence,
        "signer": "Canonical Ltd. Kernel Module Signing" if module.is_signed else "",
    }
    if field:
        return Answer.out(values.get(field, ""))
    return Answer.out("".join(f"{key}:{value:>20}\n" for key, value in values.items()))


def mokutil(call: Call) -> Answer:
    """`mokutil --sb-state`."""
    if call.arguments != ("--sb-state",):
        return Answer.error("mokutil: only --sb-state on a simulated host", 1)
    enabled = call.faults.first(SecureBoot) is not None
    return Answer.out(f"SecureBoot {'enabled' if enabled else 'disabled'}")
