"""How a change of layout and a lease keep out of each other's way, on the machine that both act on.

Whoever changes partitions holds `LOCK`, a file lock that ends with its holder. A lease marks its GPUs
before it activates their partition, and the mark stays until the GPU is reset. Whoever changes the
layout looks for marks once it has the lock, and changes nothing that has one. So of both at least one
sees the other: a mark that is older than the look is seen by it; one that is younger belongs to an
activation that has to wait for the lock.

The marks are empty folders under /run, which a restart of the machine empties, as it ends the VMs.
"""

from __future__ import annotations

LOCK = "/run/lock/gpu-clusters-fabric"
MARKS = "/run/gpu-clusters-leases"
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
