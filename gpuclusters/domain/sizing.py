"""How much memory, address space and time VMs with GPUs need.

Sources: measurements published for 8-GPU H100 hosts (kernel 6.8, iommufd); OVMF's choice of its 64-bit
aperture (an eighth of the guest's physical address space).
"""

from __future__ import annotations

from collections.abc import Sequence

GIB = 1024  # in MiB

_BOOT_SECONDS = 30
_MAP_SECONDS_PER_GPU = 15
_DRIVER_SECONDS_PER_GPU = 4
_PIN_SECONDS_PER_GIB = 0.1
_GUEST_CDI_SECONDS = 58
_FABRIC_HUB_SECONDS = 13
_OTHER_BARS_GIB = 1


def boot_seconds(gpus: int, memory_gib: int) -> int:
    """How long a VM takes until its agent answers: firmware, BARs, memory pinned, driver."""
    per_gpu = _MAP_SECONDS_PER_GPU + _DRIVER_SECONDS_PER_GPU
    return round(_BOOT_SECONDS + gpus * per_gpu + memory_gib * _PIN_SECONDS_PER_GIB)


def guest_cdi_seconds(gpus: int) -> int:
    """How long the agent waits until the guest's driver has all GPUs and CDI names them."""
    return _GUEST_CDI_SECONDS + _FABRIC_HUB_SECONDS + gpus * _DRIVER_SECONDS_PER_GPU


def aperture_gib(physical_address_bits: int) -> int:
    """The 64-bit window that a VM's firmware opens for BARs."""
    return 1 << max(physical_address_bits - 30 - 3, 0)


def bars_gib(gpus: int, bar_gib: int) -> int:
    """The window that this many GPUs need; the small BARs of each count as one GiB."""
    return gpus * (bar_gib + _OTHER_BARS_GIB)


def guests_mib(partitions: Sequence[int], guest_memory_mib: int, overhead_mib: int) -> int:
    """Memory of one guest in every partition, beside it what Kata itself takes."""
    return len(partitions) * (guest_memory_mib + overhead_mib)
