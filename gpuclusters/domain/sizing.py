"""How much memory and address space VMs with GPUs need.

Source: OVMF's choice of its 64-bit aperture (an eighth of the guest's physical address space).
"""

from __future__ import annotations

from collections.abc import Sequence

GIB = 1024  # in MiB

_OTHER_BARS_GIB = 1


def aperture_gib(physical_address_bits: int) -> int:
    """The 64-bit window that a VM's firmware opens for BARs."""
    return 1 << max(physical_address_bits - 30 - 3, 0)


def bars_gib(gpus: int, bar_gib: int) -> int:
    """The window that this many GPUs need; the small BARs of each count as one GiB."""
    return gpus * (bar_gib + _OTHER_BARS_GIB)


def guests_mib(partitions: Sequence[int], guest_memory_mib: int, overhead_mib: int) -> int:
    """Memory of one guest in every partition, beside it what Kata itself takes."""
    return len(partitions) * (guest_memory_mib + overhead_mib)
