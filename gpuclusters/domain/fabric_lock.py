"""How the layout of a stack and the leases keep out of each other's way, on the machine that both act on.

Whoever changes partitions holds `LOCK`, a file lock that ends with its holder. Beside it lie two marks
for each GPU, empty folders:

- **leased**: somebody has the GPU, or is about to. Set before its partition is activated for a lease,
  taken away before the GPU is reset. Whoever changes the layout looks for marks once it has the lock,
  and takes down nothing that has one. So of both at least one sees the other: a mark that is older
  than the look is seen by it; one that is younger belongs to an activation that has to wait for the
  lock. These lie under /run, which a restart of the machine empties, as it ends the VMs.
- **withheld**: the leases have taken the GPU's partition down, or want it down, and will bring it up
  themselves: the GPU is being recycled, or is in quarantine. Set, with the lock or before waiting for
  it, before the partition goes down and before the GPU is reset; taken away when the leases have
  activated a partition with the GPU, or where they keep none active when it is free. The layout
  activates nothing that has one. These outlive a restart of the machine, as a quarantine does. A mark
  that nobody takes away is a partition that stays down: wrong in the safe direction.
"""

from __future__ import annotations

LOCK = "/run/lock/gpu-clusters-fabric"
MARKS = "/run/gpu-clusters-leases"
WITHHELD = "/var/lib/gpu-clusters/withheld"
LOCKED = 75
"""How `flock` ends when the lock was not to be had in time; no exit code of fmpm, which are 227 to 255."""
LOCK_SECONDS = 20.0
"""How long an activation waits for the lock; the machine of the leases asks again until its deadline."""


def mark(pci: str) -> str:
    """The mark of a GPU that a lease has.

    Args:
        pci: its address as Linux writes it.
    """
    return f"{MARKS}/{pci}"


def withheld(pci: str) -> str:
    """The mark of a GPU whose partition the leases keep down."""
    return f"{WITHHELD}/{pci}"


def quarantined(pci: str) -> str:
    """Within that mark: the GPU is in quarantine, so that its partition stays down until somebody acts."""
    return f"{withheld(pci)}/quarantined"
