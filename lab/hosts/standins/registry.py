"""Which stand-ins there are."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping

from lab.hosts import rke2_release
from lab.hosts.standins import (
    accounts,
    apt_cache,
    apt_get,
    boot_loader,
    curl,
    dnf,
    docker,
    dpkg,
    fmpm,
    fuser,
    gpg,
    gpu_tools,
    images,
    initramfs,
    ip,
    journalctl,
    kmod,
    lspci,
    modprobe,
    nvidia,
    power,
    rke2,
    rke2_kubectl,
    rootless,
    software,
    ss,
    ssh,
    sysctl,
    systemctl,
    usernetes_docker,
    usernetes_make,
    virsh,
    zypper,
)
from lab.hosts.standins.call import Answer, Call

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
    "dockerd-rootless-setuptool.sh": rootless.setup,
    "dpkg": dpkg.run,
    "dpkg-query": software.dpkg_query,
    "dracut": initramfs.dracut,
    "fmpm": fmpm.run,
    "fuser": fuser.run,
    "genisoimage": images.genisoimage,
    "getsubids": accounts.getsubids,
    "gpg": gpg.run,
    "grub-mkconfig": boot_loader.mkconfig,
    "grub2-mkconfig": boot_loader.mkconfig,
    "grubby": boot_loader.grubby,
    "ip": ip.run,
    "journalctl": journalctl.run,
    "loginctl": accounts.loginctl,
    "lsmod": modprobe.lsmod,
    "lspci": lspci.run,
    "modinfo": kmod.modinfo,
    "modprobe": modprobe.run,
    "make": usernetes_make.run,
    "mokutil": kmod.mokutil,
    "needs-restarting": dnf.needs_restarting,
    gpu_tools.NAME: gpu_tools.run,
    "nvidia-ctk": nvidia.ctk,
    "nvidia-smi": nvidia.smi,
    "qemu-img": images.qemu_img,
    "qemu-system-x86_64": software.qemu,
    "reboot": power.reboot,
    rke2_release.PROGRAM: rke2.run,
    rke2.KUBECTL: rke2_kubectl.run,
    "rootlesskit": rootless.kit,
    "rpm": dnf.rpm,
    "shutdown": power.shutdown,
    "ss": ss.run,
    "ssh": ssh.run,
    "sysctl": sysctl.run,
    "systemctl": systemctl.run,
    "systemd-notify": journalctl.notify,
    "update-grub": boot_loader.update_grub,
    "update-initramfs": initramfs.update,
    "useradd": accounts.useradd,
    "usermod": accounts.usermod,
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
