"""Stand-ins for `modprobe` and `lsmod`: VFIO's modules load, NVIDIA's where it is installed."""

from __future__ import annotations

import os

from lab.hosts.call import Answer, Call
from lab.hosts.hardware.kernel import MODULES, NOUVEAU
from lab.hosts.nvidia import driver
from lab.hosts.nvidia.driver_faults import GpuInUse, SecureBoot
from lab.hosts.usernetes.rootless_faults import OpenKernelModule

_KNOWN = {"vfio", "vfio_iommu_type1", "vfio_pci", "vhost_net", "vhost_vsock"} | {
    "br_netfilter",
    "ib_umad",
    "iommufd",
    "kvm",
    "kvm_intel",
    "mlx5_ib",
    "nouveau",
    "overlay",
    # What a node of Kubernetes in a user namespace needs.
    *("tun", "tap", "bridge", "veth", "ip_tables", "ip6_tables", "iptable_nat", "ip6table_nat"),
    *("iptable_filter", "ip6table_filter", "nf_tables", "x_tables", "xt_MASQUERADE", "xt_addrtype"),
    *("xt_comment", "xt_conntrack", "xt_mark", "xt_multiport", "xt_nat", "xt_tcpudp", "vxlan"),
}


def run(call: Call) -> Answer:
    remove, names = False, list[str]()
    for argument in call.arguments:
        if argument in {"-V", "--version"}:
            return Answer.out("kmod version 31 (stand-in of a simulated host)")
        if argument in {"-r", "--remove"}:
            remove = True
        elif argument.startswith("-") and argument not in {"-a", "-q", "-v"}:
            return Answer.error(f"modprobe: invalid option -- '{argument.lstrip('-')}'", 1)
        elif "=" not in argument and not argument.startswith("-"):
            names.append(argument.replace("-", "_"))
    if not names:
        return Answer.error("modprobe: ERROR: missing parameters. See -h.", 1)
    for name in names:
        if name == driver.MODULE and driver.module(call.machine) is not None:
            problem = _nvidia(call, remove=remove)
            if problem is not None:
                return Answer.error(f"modprobe: ERROR: {problem}", 1)
        elif name not in _KNOWN:
            release = os.uname().release
            text = f"Module {name} not found in directory /lib/modules/{release}"
            return Answer.error(f"modprobe: FATAL: {text}", 1)
        if not call.is_root:
            verb = "remove" if remove else "insert"
            return Answer.error(
                f"modprobe: ERROR: could not {verb} '{name}': Operation not permitted", 1
            )
        if not remove and call.control.kernel.refuses(name):
            return Answer.error(
                f"modprobe: ERROR: could not insert '{name}': Operation not permitted", 1
            )
        if remove:
            call.control.kernel.unload(name)
        else:
            call.control.kernel.load(name)
        call.control.watch()
    return Answer()


def _nvidia(call: Call, *, remove: bool) -> str | None:
    """Why NVIDIA's module is not put in or taken out."""
    if remove:
        held = call.faults.first(GpuInUse) or driver.fabric_holds(call.machine)
        return "Module nvidia is in use." if held else None
    nouveau = call.control.kernel.is_loaded(NOUVEAU)
    return driver.refusal(call.machine, call.faults, nouveau=nouveau)


def lsmod(call: Call) -> Answer:
    """`lsmod`: from the host's own list, which also covers /proc/modules where there is one."""
    if call.arguments:
        return Answer.error("Usage: lsmod", 1)
    lines = ["Module                  Size  Used by"]
    for line in call.machine.path(MODULES).read_text().splitlines():
        name, size, count, users, *_ = line.split()
        by = "" if users == "-" else f" {users.rstrip(',')}"
        lines.append(f"{name:<19} {size:>8}  {count}{by}")
    return Answer.out("\n".join(lines))


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
