"""Preflight: versions and programs of the host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuclusters.core.finding import Finding
from gpuclusters.domain.preflight_expects import listed
from gpuclusters.domain.preflight_finding import Check, Look, wrong
from gpuclusters.domain.versions import older, parse_release

# Packages that bring a kernel module of NVIDIA: Debian's and Ubuntu's names, and those of NVIDIA's own
# repositories. Toolkits, firmware and the fabric manager's client bring none.
_DRIVER_PACKAGE = re.compile(
    r"nvidia-(driver|dkms|kernel|open)(-.*)?|linux-modules-nvidia-.*|kmod-nvidia.*|cuda-drivers.*"
    r"|xserver-xorg-video-nvidia.*"
)


def no_driver_is_installed(look: Look) -> Iterator[Finding]:
    """The host has no NVIDIA driver package."""
    found = sorted(p for p in look.facts.packages if _DRIVER_PACKAGE.fullmatch(p))
    if found:
        shown = listed(f"{name} {look.facts.packages[name]}" for name in found)
        yield wrong("driver-installed", f"installed: {shown}", "no NVIDIA driver")


def kernel_is_new_enough(look: Look) -> Iterator[Finding]:
    """Large BARs are mapped by huge pages."""
    if _older(look.facts.kernel, look.expects.kernel_minimum):
        yield wrong(
            "kernel-old", f"Linux {look.facts.kernel}", f"{look.expects.kernel_minimum} or newer"
        )


def qemu_is_new_enough(look: Look) -> Iterator[Finding]:
    """There is a QEMU, and it maps BARs aligned."""
    found, wanted = look.facts.qemu, look.expects.qemu_minimum
    if found is None:
        yield wrong("qemu-missing", "no qemu-system-x86_64", f"{wanted} or newer")
    elif _older(found, wanted):
        yield wrong("qemu-old", f"QEMU {found}", f"{wanted} or newer")


def libvirt_is_new_enough(look: Look) -> Iterator[Finding]:
    """There is a libvirt that can set a VM's address space."""
    found, wanted = look.facts.libvirt, look.expects.libvirt_minimum
    if found is None:
        yield wrong("libvirt-missing", "no virsh", f"{wanted} or newer")
    elif _older(found, wanted):
        yield wrong("libvirt-old", f"libvirt {found}", f"{wanted} or newer")


def vms_have_firmware(look: Look) -> Iterator[Finding]:
    """There is an OVMF image."""
    if not look.facts.firmware:
        yield wrong("ovmf-missing", "no OVMF image", "OVMF_CODE_4M.fd or OVMF_CODE.fd")


def preparation_has_its_programs(look: Look) -> Iterator[Finding]:
    """systemd, a package manager, fuser."""
    commands = look.facts.commands
    if "systemctl" not in commands:
        yield wrong("no-systemd", "no systemctl", "systemd")
    if not commands & {"apt-get", "dnf"}:
        yield wrong("no-package-manager", "neither apt-get nor dnf", "one of them")
    if "fuser" not in commands:
        yield wrong("fuser-missing", "no fuser", "fuser, of the package psmisc")


def _older(found: str, minimum: str) -> bool:
    least = parse_release(minimum)
    return least is not None and older(found, least)


CHECKS: tuple[Check, ...] = (
    no_driver_is_installed,
    kernel_is_new_enough,
    qemu_is_new_enough,
    libvirt_is_new_enough,
    vms_have_firmware,
    preparation_has_its_programs,
)
