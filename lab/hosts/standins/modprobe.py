"""Stand-ins for `modprobe` and `lsmod`: VFIO's modules load, NVIDIA's are not installed here."""

from __future__ import annotations

import os

from lab.hosts.standins.call import Answer, Call
from lab.hosts.tree import LIB

_KNOWN = {"vfio", "vfio_iommu_type1", "vfio_pci", "vhost_net", "vhost_vsock"} | {
    "br_netfilter",
    "ib_umad",
    "iommufd",
    "kvm",
    "kvm_intel",
    "mlx5_ib",
    "nouveau",
    "overlay",
}
_LIST = f"/{LIB}/proc/modules"


def run(call: Call) -> Answer:
    """Answer like `modprobe`."""
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
        if name not in _KNOWN:
            release = os.uname().release
            text = f"Module {name} not found in directory /lib/modules/{release}"
            return Answer.error(f"modprobe: FATAL: {text}", 1)
        if not call.is_root:
            verb = "remove" if remove else "insert"
            return Answer.error(
                f"modprobe: ERROR: could not {verb} '{name}': Operation not permitted", 1
            )
        _set(call, name, loaded=not remove)
    return Answer()


def lsmod(call: Call) -> Answer:
    """`lsmod`: from the host's own list, which also covers /proc/modules where there is one."""
    if call.arguments:
        return Answer.error("Usage: lsmod", 1)
    lines = ["Module                  Size  Used by"]
    for line in call.machine.path(_LIST).read_text().splitlines():
        name, size, count, users, *_ = line.split()
        by = "" if users == "-" else f" {users.rstrip(',')}"
        lines.append(f"{name:<19} {size:>8}  {count}{by}")
    return Answer.out("\n".join(lines))


def _set(call: Call, name: str, *, loaded: bool) -> None:
    listing = call.machine.path(_LIST)
    rest = [line for line in listing.read_text().splitlines() if line.split()[0] != name]
    if loaded:
        rest.insert(0, f"{name} 16384 0 - Live 0x0000000000000000")
    listing.write_text("".join(f"{line}\n" for line in rest))
    folder = call.machine.path(f"/sys/module/{name}")
    if loaded:
        folder.mkdir(exist_ok=True)
        (folder / "initstate").write_text("live\n")
    elif folder.is_dir():
        (folder / "initstate").unlink(missing_ok=True)
        folder.rename(folder.with_name(f".{name}"))
