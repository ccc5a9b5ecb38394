"""Faults of a host's boot and of its drivers. Used through `faults`, which knows all kinds."""

from __future__ import annotations

from typing import Literal

from lab.hosts.service_vm.fabric_faults import BaseFault


class RebootNeverReturns(BaseFault):
    """After the next reboot the machine stays off the network until this fault is taken away."""

    kind: Literal["reboot-never-returns"] = "reboot-never-returns"


class BootsOldKernelLine(BaseFault):
    """The machine boots with the command line that it had: another boot entry is the default."""

    kind: Literal["boots-old-kernel-line"] = "boots-old-kernel-line"


class InitramfsFails(BaseFault):
    """`update-initramfs` or `dracut` ends with an error."""

    kind: Literal["initramfs-fails"] = "initramfs-fails"


class DeviceRefusesUnbind(BaseFault):
    """The driver of this function never lets go of it."""

    kind: Literal["device-refuses-unbind"] = "device-refuses-unbind"
    address: str


class DeviceHeld(BaseFault):
    """A process has the graphics node of this function open, as a display server would."""

    kind: Literal["device-held"] = "device-held"
    address: str
    pid: int = 1411
