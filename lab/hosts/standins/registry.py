"""Which stand-ins there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lab.hosts.standins import (
    apt_get,
    fmpm,
    fuser,
    gpu_tools,
    lspci,
    modprobe,
    nvidia,
    systemctl,
    virsh,
)
from lab.hosts.standins.call import Answer, Call

SUDO = "sudo"
"""Answered by the server itself, which alone can start another command."""

STAND_INS: Mapping[str, Callable[[Call], Answer]] = {
    "apt-get": apt_get.run,
    "fmpm": fmpm.run,
    "fuser": fuser.run,
    "lsmod": modprobe.lsmod,
    "lspci": lspci.run,
    "modprobe": modprobe.run,
    gpu_tools.NAME: gpu_tools.run,
    "nvidia-ctk": nvidia.ctk,
    "nvidia-smi": nvidia.smi,
    "systemctl": systemctl.run,
    "virsh": virsh.run,
}

NAMES = frozenset({*STAND_INS, SUDO})
