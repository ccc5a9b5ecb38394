"""What fits together: RKE2, operating systems, GPU Operator, drivers, GPUs."""

from __future__ import annotations

from enum import StrEnum


class ModulesPolicy(StrEnum):
    """Which kernel modules of the driver."""

    AUTO = "auto"
    """By the architecture of the GPUs."""
    OPEN = "open"
    """From Turing on; the only ones for Blackwell."""
    PROPRIETARY = "proprietary"
    """The only ones before Turing; gone from branch 620 on."""


class OperatingSystem(StrEnum):
    """Operating systems of hosts, by major release, as NVIDIA's support matrix names them."""

    UBUNTU_22_04 = "ubuntu-22.04"
    UBUNTU_24_04 = "ubuntu-24.04"
    UBUNTU_26_04 = "ubuntu-26.04"
    RHEL_8 = "rhel-8"
    RHEL_9 = "rhel-9"
    RHEL_10 = "rhel-10"
    ROCKY_8 = "rocky-8"
    ROCKY_9 = "rocky-9"
    ROCKY_10 = "rocky-10"
    SLES_15 = "sles-15"
    SLES_16 = "sles-16"
