"""`preparation`: how the machines are made ready to pass their GPUs through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from gpuclusters.boot import command_line
from gpuclusters.boot.model import Cpu, RebootPolicy
from gpuclusters.config.base import Count, Flag, Integer, Section, Text, refusal

PACKAGES = (
    "qemu-system-x86",
    "qemu-utils",
    "libvirt-daemon-system",
    "libvirt-clients",
    "ovmf",
    "genisoimage",
    "psmisc",
    "pciutils",
)
"""What a machine needs, by its Debian name; the script knows the names of the RHEL family."""


def _argument(value: str) -> str:
    try:
        return command_line.check(value)
    except ValueError:
        raise refusal(
            "is not one kernel argument",
            "write name or name=value, without blanks and quotes",
        ) from None


Argument = Annotated[Text, AfterValidator(_argument)]


class Preparation(Section):
    """What is set on every machine before it passes GPUs through: kernel, drivers, packages, limits."""

    reboot: RebootPolicy = RebootPolicy.REFUSE
    """allow: a machine whose kernel lacks an argument is rebooted, never while a VM has a GPU. refuse: the
    arguments are set for the next boot, and the step says which command reboots."""
    reboot_timeout_seconds: Annotated[Integer, Field(ge=60, le=7200)] = 1200
    """How long a machine may take from the order to reboot until it answers again; HGX machines test their
    memory for minutes."""
    cpu: Cpu = Cpu.INTEL
    """Whose processors the machines have: which argument switches on the IOMMU."""
    early_claim: Flag = False
    """Whether vfio-pci also claims by PCI id while the kernel starts (vfio-pci.ids). It takes every
    function with the id, wanted or not; only for machines on which another driver is faster than the unit."""
    disable_idle_d3: Flag = True
    """Whether vfio-pci leaves unused GPUs awake (disable_idle_d3)."""
    dma_entry_limit: Annotated[Integer | None, Field(ge=1024, le=10_000_000)] = None
    """Mappings that one VM may have (dma_entry_limit of vfio_iommu_type1); the kernel's own is 65535."""
    inotify_instances: Count = 8192
    """fs.inotify.max_user_instances: kubelet, containerd and every Kata shim take some."""
    inotify_watches: Annotated[Integer, Field(ge=8192, le=10_000_000)] = 1_048_576
    """fs.inotify.max_user_watches."""
    extra_kernel_arguments: tuple[Argument, ...] = ()
    """Arguments of your own behind ours, such as pci=realloc."""
    package_versions: Mapping[Text, Text] = Field(default_factory=dict)
    """Version of a package by its name, as the machine's package manager writes both; others are installed in
    the newest version that the machine's sources have, once."""
