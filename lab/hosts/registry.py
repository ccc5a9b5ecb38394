"""Which commands of a host are stand-ins: documented output, documented exit codes.

A stand-in refuses what it does not know, as the real command would refuse an unknown option.
"""

from collections.abc import Mapping

from lab.hosts.hardware import boot_programs, lspci, modprobe, system_programs
from lab.hosts.nvidia import gpu_tools, nvidia_ctk, nvidia_smi
from lab.hosts.packages import apt, curl, dnf, zypper
from lab.hosts.program import Program
from lab.hosts.rke2 import rke2, rke2_kubectl
from lab.hosts.service_vm import fmpm, images, ssh, virsh
from lab.hosts.systemd import journalctl, systemctl
from lab.hosts.usernetes import account_commands, docker, rootless_commands, usernetes_make

SUDO = "sudo"
"""Answered by the server itself, which alone can start another command."""
_MODULES = (
    *(account_commands, apt, boot_programs, curl, dnf, docker, fmpm, gpu_tools, images, journalctl),
    *(lspci, modprobe, nvidia_ctk, nvidia_smi, rke2, rke2_kubectl, rootless_commands, ssh),
    *(system_programs, systemctl, usernetes_make, virsh, zypper),
)
STAND_INS: Mapping[str, Program] = {
    one.name: one
    for module in _MODULES
    for one in vars(module).values()
    if isinstance(one, Program)
}
NAMES = frozenset({*STAND_INS, SUDO})


def names_on(system: str) -> frozenset[str]:
    """The stand-ins of a machine with this operating system."""
    here = {name for name, one in STAND_INS.items() if not one.on or system in one.on.split()}
    return frozenset({*here, SUDO})
