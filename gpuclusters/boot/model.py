"""What a host has to boot with so that its GPUs can be passed through: arguments and files.

The sources of each setting:

- `intel_iommu=on` / `amd_iommu=on iommu=pt`: NVIDIA's GPU Operator with Kata and the kernel's VFIO
  documentation: without an IOMMU there are no groups, and `pt` spares the host's own devices the mapping;
- no nouveau, no NVIDIA driver on the host: NVIDIA's driver installation guide (blacklist, `modeset=0`) and
  its documentation of Kata, "host must have no NVIDIA driver"; `module_blacklist=` holds even against an
  explicit modprobe, files in modprobe.d only against automatic loading;
- `softdep nvidia pre: vfio-pci`: vfio-pci is there before any NVIDIA module could be;
- pages of 1 GiB: see `command_line`;
- `vfio_iommu_type1 dma_entry_limit`: the kernel's default of 65535 mappings for each VM.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, NonNegativeInt

from gpuclusters.boot import command_line
from gpuclusters.core.model import Strict, matches
from gpuclusters.core.section import Count, Flag, Integer, Section, Text, holds
from gpuclusters.host.model import HostConnection, sha256_of
from gpuclusters.vfio.model import VfioFunction

MARK = "# Written by gpu-clusters; changes are put back."

GRUB_FILE = "/etc/default/grub.d/90-gpu-clusters.cfg"
"""After 50-cloudimg-settings.cfg of cloud images, which starts the line anew."""
ARGUMENTS_FILE = "/etc/gpu-clusters/kernel-arguments"
"""Where there is no folder for others: what grubby was told, so that exactly this can be taken out again."""
MODPROBE_FILE = "/etc/modprobe.d/gpu-clusters.conf"
MODULES_FILE = "/etc/modules-load.d/gpu-clusters.conf"
SYSCTL_FILE = "/etc/sysctl.d/90-gpu-clusters.conf"
LIMITS_FILE = "/etc/security/limits.d/90-gpu-clusters.conf"
INITRAMFS_STAMP = "/var/lib/gpu-clusters/initramfs"
"""Digest of the files with which the initramfs was built last."""
LIBVIRT_FILE = "/etc/systemd/system/libvirtd.service.d/90-gpu-clusters.conf"

BLOCKED_MODULES = (
    "nouveau",
    "nova_core",
    "nova_drm",
    "nvidia",
    "nvidia_drm",
    "nvidia_modeset",
    "nvidia_peermem",
    "nvidia_uvm",
    "nvidiafb",
)
"""Drivers that would take a GPU before a virtual machine gets it."""


class Cpu(StrEnum):
    """Whose processors the machine has: decides how its IOMMU is switched on."""

    INTEL = "intel"
    AMD = "amd"


class RebootPolicy(StrEnum):
    """Whether a host may be rebooted for what only a boot can change."""

    ALLOW = "allow"
    REFUSE = "refuse"


Argument = Annotated[Text, holds(command_line.check, "kernel-argument")]


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


_DEFAULTS = Preparation()


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePreparation:
    """What one machine must boot with, and what belongs to vfio-pci."""

    kernel_arguments: Sequence[str]
    files: Mapping[str, str]
    functions: Sequence[VfioFunction]
    huge_pages_1g: Mapping[int, int] = field(default_factory=dict)
    packages: Mapping[str, str | None] = field(default_factory=dict)
    """Version by name; None for any."""
    may_reboot: bool = False
    reboot_timeout_seconds: int = 1200


def kernel_arguments(
    *,
    cpu: Cpu,
    huge_pages_1g_by_numa_node: Mapping[int, int],
    early_claim: Sequence[str] = (),
    extra: Sequence[str] = (),
) -> tuple[str, ...]:
    """All arguments that a host needs, and what else the operator wants on the line.

    `early_claim`: PCI ids that vfio-pci takes by itself as soon as it is loaded, where another driver would
    be faster; all functions with the id are taken, so addresses are better.
    """
    claim = (f"vfio-pci.ids={','.join(sorted(set(early_claim)))}",) if early_claim else ()
    return (
        f"{cpu}_iommu=on",
        "iommu=pt",
        *command_line.huge_page_arguments(huge_pages_1g_by_numa_node),
        f"module_blacklist={','.join(BLOCKED_MODULES)}",
        *claim,
        *extra,
    )


def host_files(said: Preparation = _DEFAULTS) -> Mapping[str, str]:
    """Files of modprobe, sysctl and limits, by path; waking an unused GPU can fail on H100 boards."""
    modprobe = [MARK, *(f"blacklist {name}" for name in BLOCKED_MODULES)]
    modprobe += ["options nouveau modeset=0", "softdep nvidia pre: vfio-pci"]
    if said.disable_idle_d3:
        modprobe.append("options vfio-pci disable_idle_d3=1")
    if said.dma_entry_limit is not None:
        modprobe.append(f"options vfio_iommu_type1 dma_entry_limit={said.dma_entry_limit}")
    sysctl = [
        MARK,
        f"fs.inotify.max_user_instances = {said.inotify_instances}",
        f"fs.inotify.max_user_watches = {said.inotify_watches}",
    ]
    # VFIO pins all memory of a guest; libvirt raises the limit for its own guests only when it sees a device.
    limits = [MARK, *(f"@kvm {kind} memlock unlimited" for kind in ("soft", "hard"))]
    return {
        MODPROBE_FILE: _lines(modprobe),
        MODULES_FILE: _lines([MARK, "vfio-pci"]),
        SYSCTL_FILE: _lines(sysctl),
        LIMITS_FILE: _lines(limits),
        LIBVIRT_FILE: _lines([MARK, "[Service]", "LimitMEMLOCK=infinity"]),
    }


def initramfs_digest(files: Mapping[str, str]) -> str:
    """Digest of those of the files that have to be in the initramfs."""
    parts = [f"{path}\n{text}" for path, text in sorted(files.items()) if "/modprobe.d/" in path]
    return sha256_of("\0".join(parts).encode())


_NODE = matches("[0-9]+", "write the number of a NUMA node")


class HostBootInputs(Strict):
    """Inputs of what a host boots with."""

    connection: HostConnection
    kernel_arguments: tuple[Annotated[str, AfterValidator(command_line.check)], ...]
    files: Mapping[str, str] = Field(default_factory=dict)
    """Content by path; each begins with `MARK`."""
    huge_pages_1g: Mapping[Annotated[str, _NODE], NonNegativeInt] = Field(default_factory=dict)
    """Pages that have to be there after a boot, by NUMA node."""
    reboot: RebootPolicy = RebootPolicy.REFUSE
    reboot_timeout_seconds: Annotated[int, Field(ge=1, le=7200)] = 1200
    adopt: bool = False

    @property
    def natural_id(self) -> str:
        return f"{self.connection.host}/boot"


def render_grub_file(arguments: Sequence[str]) -> str:
    """Our file in /etc/default/grub.d: appends to what others have set."""
    joined = " ".join(arguments)
    return _lines(
        [
            MARK,
            "# Kernel arguments for GPU passthrough, behind all others. Removed with its resource.",
            f'GRUB_CMDLINE_LINUX="${{GRUB_CMDLINE_LINUX:+$GRUB_CMDLINE_LINUX }}{joined}"',
        ]
    )


def render_arguments_file(arguments: Sequence[str]) -> str:
    """Our note of what grubby was told."""
    return _lines([MARK, *arguments])


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
