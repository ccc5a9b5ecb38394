"""Stand-in for `dpkg`: whether an installation was cut off, and finishing it.

Sources: dpkg(1), `--audit` ("packages that have been installed only partially on your system") and
`--configure -a`; apt's words where it finds dpkg interrupted.
"""

from __future__ import annotations

from lab.hosts.call import Answer, Call
from lab.hosts.faults import Faults, PackageInstallationCutOff, PackageManagerLocked
from lab.hosts.machine import Machine

INTERRUPTED = (
    "E: dpkg was interrupted, you must manually run 'sudo dpkg --configure -a' to correct the "
    "problem."
)
_FINISHED = "dpkg_finished"


def interrupted(machine: Machine, faults: Faults) -> bool:
    """Whether an installation was cut off and not finished since."""
    finished: list[str] = machine.state.get(_FINISHED, [])
    return any(fault.token not in finished for fault in faults.all(PackageInstallationCutOff))


def run(call: Call) -> Answer:
    cut_off = interrupted(call.machine, call.faults)
    match call.arguments:
        case ("--version",):
            return Answer.out("Debian 'dpkg' package management program version 1.22.6 (stand-in)")
        case ("--audit" | "-C",):
            if not cut_off:
                return Answer()
            return Answer.out(
                "The following packages have been unpacked but not yet configured.\n"
                "They must be configured using dpkg --configure or the configure\n"
                "menu option in dselect for them to work:\n qemu-utils           QEMU utilities"
            )
        case ("--configure", "-a" | "--pending"):
            return _configure(call, cut_off=cut_off)
    return Answer.error("dpkg: error: need an action option that this stand-in knows", 2)


def _configure(call: Call, *, cut_off: bool) -> Answer:
    if not call.is_root:
        return Answer.error("dpkg: error: requested operation requires superuser privilege", 2)
    if call.faults.first(PackageManagerLocked):
        return Answer.error(
            "dpkg: error: dpkg frontend lock was locked by another process with pid 1193", 2
        )
    if not cut_off:
        return Answer()
    tokens = [fault.token for fault in call.faults.all(PackageInstallationCutOff)]
    call.machine.state[_FINISHED] = tokens
    call.machine.note("packages", finished=True)
    return Answer.out("Setting up qemu-utils (1:10.1.0+ds-5ubuntu2) ...")
