"""Why tenants' containers are virtual machines and nothing lighter.

gVisor gives a container a kernel in user space; for GPUs its `nvproxy` takes the calls on `/dev/nvidia*` and
passes those that it knows on to the NVIDIA driver of the machine. Source: gVisor's documentation on GPU
support. What follows from that is said where it is refused.
"""

from __future__ import annotations

from typing import Final

SHARED_DRIVER: Final = (
    "does not keep tenants apart: its nvproxy passes their calls on to one NVIDIA driver in the machine's "
    "own kernel, so that a fault of the driver is every tenant's; and that driver would have to be on "
    "machines that must have none, because their GPUs are passed through"
)
"""With more than one tenant."""

NOT_BUILT: Final = (
    "is not built: it needs the NVIDIA driver on the machines and GPUs that are not on vfio-pci, which is "
    "another cluster than this type makes"
)
"""With one tenant, who could live with it."""


def gvisor_refusal(tenants: int) -> tuple[str, str]:
    """What is wrong with gVisor here, and what to do instead.

    Args:
        tenants: how many share the cluster.
    """
    if tenants > 1:
        return SHARED_DRIVER, "write kata"
    return NOT_BUILT, "write kata, or use cluster-type: rke2, whose machines have the driver"
