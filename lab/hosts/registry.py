"""Which commands of a host are stand-ins: documented output, documented exit codes.

Each module has `run(call) -> Answer`. A stand-in refuses what it does not know, as the real command
would refuse an unknown option; it never accepts and ignores.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping

from lab.hosts.call import Answer, Call
from lab.hosts.hardware import boot_loader, fuser, initramfs, lspci, modprobe, power, sysctl
from lab.hosts.nvidia import commands, gpu_tools
from lab.hosts.packages import apt_cache, apt_get, curl, dnf, dpkg, gpg, software, zypper
from lab.hosts.rke2 import ip, rke2, rke2_kubectl, rke2_release, ss
from lab.hosts.service_vm import fmpm, images, ssh, virsh
from lab.hosts.systemd import journalctl, systemctl
from lab.hosts.usernetes import (
    account_commands,
    docker,
    rootless_commands,
    usernetes_docker,
    usernetes_make,
)

SUDO = "sudo"
"""Answered by the server itself, which alone can start another command."""

StandIn = Callable[[Call], Answer | Coroutine[None, None, Answer]]

usernetes_docker.install()

STAND_INS: Mapping[str, StandIn] = {
    "apt-cache": apt_cache.run,
    "apt-get": apt_get.run,
    "apt-mark": apt_get.mark,
    "curl": curl.run,
    "df": software.df,
    "dnf": dnf.run,
    "docker": docker.run,
    "dockerd-rootless-setuptool.sh": rootless_commands.setup,
    "dpkg": dpkg.run,
    "dpkg-query": software.dpkg_query,
    "dracut": initramfs.dracut,
    "fmpm": fmpm.run,
    "fuser": fuser.run,
    "genisoimage": images.genisoimage,
    "getsubids": account_commands.getsubids,
    "gpg": gpg.run,
    "grub-mkconfig": boot_loader.mkconfig,
    "grub2-mkconfig": boot_loader.mkconfig,
    "grubby": boot_loader.grubby,
    "ip": ip.run,
    "journalctl": journalctl.run,
    "loginctl": account_commands.loginctl,
    "lsmod": modprobe.lsmod,
    "lspci": lspci.run,
    "modinfo": modprobe.modinfo,
    "modprobe": modprobe.run,
    "make": usernetes_make.run,
    "mokutil": modprobe.mokutil,
    "needs-restarting": dnf.needs_restarting,
    gpu_tools.NAME: gpu_tools.run,
    "nvidia-ctk": commands.ctk,
    "nvidia-smi": commands.smi,
    "qemu-img": images.qemu_img,
    "qemu-system-x86_64": software.qemu,
    "reboot": power.reboot,
    rke2_release.PROGRAM: rke2.run,
    rke2.KUBECTL: rke2_kubectl.run,
    "rootlesskit": rootless_commands.kit,
    "rpm": dnf.rpm,
    "shutdown": power.shutdown,
    "ss": ss.run,
    "ssh": ssh.run,
    "sysctl": sysctl.run,
    "systemctl": systemctl.run,
    "systemd-notify": journalctl.notify,
    "update-grub": boot_loader.update_grub,
    "update-initramfs": initramfs.update,
    "useradd": account_commands.useradd,
    "usermod": account_commands.usermod,
    "virsh": virsh.run,
    "zypper": zypper.run,
}

_DEBIAN = frozenset(
    {
        *("apt-cache", "apt-get", "apt-mark", "dpkg", "dpkg-query"),
        *("docker", "dockerd-rootless-setuptool.sh", "rootlesskit"),
        *("grub-mkconfig", "update-grub", "update-initramfs"),
    }
)
_RED_HAT = frozenset({"dnf", "dracut", "grub2-mkconfig", "grubby", "needs-restarting", "rpm"})
_SUSE = frozenset({"dracut", "grub2-mkconfig", "rpm", "zypper"})
_OWN: Mapping[str, frozenset[str]] = {"ubuntu": _DEBIAN, "rocky": _RED_HAT, "sles": _SUSE}
"""Commands of an operating system that not all others have."""

PACKAGE_OF: Mapping[str, tuple[str, ...]] = {
    "docker": ("docker-ce-cli",),
    "dockerd-rootless-setuptool.sh": ("docker-ce-rootless-extras",),
    "fuser": ("psmisc",),
    "genisoimage": ("genisoimage",),
    "getsubids": ("uidmap",),
    "lspci": ("pciutils",),
    "make": ("make",),
    "mokutil": ("mokutil",),
    "qemu-img": ("qemu-utils", "qemu-img"),
    "rootlesskit": ("docker-ce-rootless-extras",),
    "qemu-system-x86_64": ("qemu-system-x86", "qemu-kvm"),
    "virsh": ("libvirt-clients", "libvirt-client"),
}
"""Commands that are there once a package is, by any of its names."""

NAMES = frozenset({*STAND_INS, SUDO})


def names_on(system: str) -> frozenset[str]:
    """The stand-ins of a machine with this operating system."""
    foreign = frozenset[str]().union(*_OWN.values()) - _OWN[system]
    return NAMES - foreign
