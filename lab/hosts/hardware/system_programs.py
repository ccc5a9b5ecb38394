"""Stand-ins that tell what a machine is: `df`, `fuser`, `ip`, `qemu-system-x86_64`, `ss`, `sysctl`.

Sources: df(1) and POSIX (`-P`); fuser of psmisc (process numbers on standard output, names on standard
error, 0 when somebody uses one of the files, and as an ordinary user nobody else's processes); iproute2;
sysctl(8); qemu(1).
"""

import json

from lab.files import read_json
from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.faults import DeviceHeld, DiskNearlyFull, PortTaken
from lab.hosts.hardware.kernel import graphics_node
from lab.hosts.program import program
from lab.hosts.rke2 import real_machine

_DISK_GIB, _FREE_GIB = 894, 812
_KIB_IN_GIB = 2**20
_BYTE = 256
_SSH = 22
_SYSCTL = {
    "fs.inotify.max_user_instances": "128",
    "fs.inotify.max_user_watches": "65536",
    "kernel.apparmor_restrict_unprivileged_userns": "1",
    "net.ipv4.conf.default.rp_filter": "2",
    "net.ipv4.ip_unprivileged_port_start": "1024",
}
"""What the kernel has before anybody sets it."""


@program("df", flags="-P -Pk", unknown="df: invalid option -- '{letters}'")
def df(call: Call) -> Answer:
    """`df -P`: one file system holds everything."""
    fault = call.faults.first(DiskNearlyFull)
    free = _FREE_GIB if fault is None else fault.free_gib
    used = _DISK_GIB - free
    sizes = " ".join(str(gib * _KIB_IN_GIB) for gib in (_DISK_GIB, used, free))
    there = [path for path in call.words or ["/"] if call.machine.path(call.located(path)).exists()]
    lines = [f"/dev/sda2        {sizes} {round(100 * used / _DISK_GIB):>7}% /\n" for _ in there]
    head = "Filesystem     1024-blocks      Used Available Capacity Mounted on\n" if lines else ""
    errors = [
        f"df: {path}: No such file or directory\n" for path in call.words if path not in there
    ]
    return Answer(1 if errors else 0, head + "".join(lines), "".join(errors))


@program(
    "fuser",
    of="psmisc",
    flags="-s",
    unknown="{option}: Invalid option {option}",
    version="fuser (PSmisc) 23.7",
)
def fuser(call: Call) -> Answer:
    """`fuser FILE…`: here the VFIO groups of running VMs, and graphics nodes that are held."""
    if not call.words:
        raise RefusedError("No process specification given")
    holders = _holders(call) if call.is_root else {}
    out, errors = "", ""
    for name in call.words:
        path = call.located(name)
        if not call.machine.path(path).exists():
            errors += f"Specified filename {name} does not exist.\n"
        elif path in holders:
            errors += f"{name + ':':<21}\n"
            out += "".join(f" {pid:>5}" for pid in sorted(holders[path]))
    return Answer(0 if out else 1, *(("", "") if call.has("-s") else (out, errors)))


def _holders(call: Call) -> dict[str, set[int]]:
    holders: dict[str, set[int]] = {}
    board = call.machine.board
    for partition, user in call.machine.partitions_in_use().items():
        for group in (*board.vfio_groups(partition), "vfio"):
            holders.setdefault(f"/dev/vfio/{group}", set()).add(user["pid"])
    for fault in call.faults.all(DeviceHeld):
        for gpu in board.gpus.values():
            if gpu.address == fault.address:
                holders.setdefault(f"/dev/dri/{graphics_node(gpu)}", set()).add(fault.pid)
    return holders


@program("ip", unknown=None)
def ip(call: Call) -> Answer:
    """`ip --json route get ADDRESS`: the address that the host goes out with.

    A host that is one machine with a real node has that node's. All others are on 127.0.0.1; each has an
    address of its own here, by its port, as machines of one network have.
    """
    if call.arguments[:3] != ("--json", "route", "get"):
        raise RefusedError('Object "" is unknown on a simulated host, try "ip --json route get"')
    node = real_machine.read(call.machine.folder)
    port = (read_json(call.machine.folder.identity) or {}).get("port") or 0
    address = node.address if node else f"10.128.{port // _BYTE}.{port % _BYTE}"
    return Answer.out(json.dumps([{"dst": call.arguments[3], "dev": "ens4", "prefsrc": address}]))


@program("qemu-system-x86_64", of="qemu-system-x86 qemu-kvm", flags="--version")
def qemu(call: Call) -> Answer:
    """`qemu-system-x86_64 --version`."""
    if not call.has("--version"):
        raise RefusedError(f"{call.name}: no virtual machine can be started on a simulated host")
    version = next(v for n, v in call.machine.packages.items() if n in qemu.of.split())
    upstream = version.rpartition(":")[2].partition("+")[0]
    return Answer.out(f"QEMU emulator version {upstream} (Debian {version})")


@program("ss", flags="-Hltn", unknown="ss: only -Hltn on a simulated host", unknown_exit=255)
def ss(call: Call) -> Answer:
    """`ss -Hltn`: state, queues, address, peer; the machine's own ports are out of sight."""
    ports = [_SSH, *(fault.port for fault in call.faults.all(PortTaken))]
    return Answer.out("\n".join(f"LISTEN 0 4096 0.0.0.0:{port} 0.0.0.0:*" for port in ports))


@program("sysctl", flags="-n -p -q --system", unknown="sysctl: invalid option -- '{letters}'")
def sysctl(call: Call) -> Answer:
    """`sysctl [-n] KEY…`, `-p FILE`, `--system`: the machine's own /proc/sys is not the host's."""
    own: dict[str, str] = call.machine.state.setdefault("sysctl", {})
    if call.has("-p", "--system"):
        if not call.is_root:
            raise RefusedError("sysctl: permission denied on key", 255)
        folder = call.machine.path("/etc/sysctl.d")
        found = [f"/etc/sysctl.d/{file.name}" for file in sorted(folder.glob("*.conf"))]
        return Answer.out("\n".join(_load(call, own, call.words or found)))
    values = {**_SYSCTL, **own}
    unknown = [word for word in call.words if word not in values]
    if unknown:
        raise RefusedError(f"sysctl: cannot stat /proc/sys/{unknown[0].replace('.', '/')}", 255)
    named = "" if call.has("-n") else "{} = "
    return Answer.out("\n".join(named.format(word) + values[word] for word in call.words))


def _load(call: Call, values: dict[str, str], paths: list[str]) -> list[str]:
    shown: list[str] = []
    for path in paths:
        text = call.machine.read_text(path)
        if text is None:
            raise RefusedError(f'sysctl: cannot open "{path}": No such file or directory', 255)
        for line in text.splitlines():
            key, separator, value = (part.strip() for part in line.partition("="))
            if separator and not key.startswith(("#", ";")):
                values[key] = value
                shown.append(f"{key} = {value}")
    return shown
