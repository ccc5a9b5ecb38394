"""Stand-in for `fuser` (psmisc): who holds a file open, here the VFIO groups of running VMs.

Like the real one it prints process numbers on standard output, names on standard error, exits 0
when somebody uses one of the files and 1 when nobody does, and as an ordinary user sees nobody
else's processes.
"""

from __future__ import annotations

from lab.hosts.call import Answer, Call
from lab.hosts.faults import DeviceHeld
from lab.hosts.hardware.kernel import graphics_node

_USAGE = "Usage: fuser [-s] [-v] NAME...\n"


def run(call: Call) -> Answer:
    silent = verbose = False
    names: list[str] = []
    for argument in call.arguments:
        if argument in {"-V", "--version"}:
            return Answer(stderr="fuser (PSmisc) 23.7 (stand-in of a simulated host)\n")
        if argument in {"-s", "--silent"}:
            silent = True
        elif argument in {"-v", "--verbose"}:
            verbose = True
        elif argument.startswith("-"):
            return Answer.error(f"{argument}: Invalid option {argument}\n{_USAGE}", 1)
        else:
            names.append(argument)
    if not names:
        return Answer.error(f"No process specification given\n{_USAGE}", 1)
    holders = _holders(call) if call.is_root else {}
    out, errors, used = "", "", False
    for name in names:
        path = name if name.startswith("/") else f"{call.cwd}/{name}"
        if not call.machine.path(path).exists():
            errors += "" if silent else f"Specified filename {name} does not exist.\n"
            continue
        pids = holders.get(path, [])
        used = used or bool(pids)
        if not pids or silent:
            continue
        if verbose:
            rows = "".join(f"{' ' * 21}root {pid:>10} F.... qemu-system-x86\n" for pid in pids)
            errors += f"{'':21}USER        PID ACCESS COMMAND\n{name + ':':<21}\n{rows}"
            continue
        errors += f"{name + ':':<21}\n"
        out += "".join(f" {pid:>5}" for pid in pids)
    return Answer(0 if used else 1, stdout=out, stderr=errors)


def _holders(call: Call) -> dict[str, list[int]]:
    holders: dict[str, list[int]] = {}
    for partition, user in sorted(call.machine.partitions_in_use().items()):
        for group in call.machine.board.vfio_groups(partition):
            holders.setdefault(f"/dev/vfio/{group}", []).append(user["pid"])
            holders.setdefault("/dev/vfio/vfio", []).append(user["pid"])
    for fault in call.faults.all(DeviceHeld):
        for gpu in call.machine.board.gpus.values():
            if gpu.address == fault.address:
                holders.setdefault(f"/dev/dri/{graphics_node(gpu)}", []).append(fault.pid)
    return {path: sorted(set(pids)) for path, pids in holders.items()}
