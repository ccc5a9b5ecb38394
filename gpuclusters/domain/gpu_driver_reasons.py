"""Why a driver does not come up: what its tools and the package manager say, in our words. Pure.

Wording after the driver's README and kernel messages, the Fabric Manager User Guide, apt, dnf and zypper.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

Reason = tuple[str, str]
"""Cause, and what to do."""

_TABLE: Sequence[tuple[str, Reason]] = (
    (
        r"Key was rejected by service",
        (
            "Secure Boot refuses the module, which nobody has signed",
            "use prebuilt signed modules, enrol a key of your own (MOK), or switch Secure Boot off",
        ),
    ),
    (
        r"supported through the NVIDIA \d+\.xx Legacy|will ignore this GPU",
        (
            "this branch of the driver does not know the GPU any more",
            "write driver.branch: 580 for GPUs older than Turing",
        ),
    ),
    (
        r"GPU System Processor|\bGSP\b.*not",
        (
            "open modules do not know GPUs older than Turing",
            "write driver.modules: proprietary for this pool",
        ),
    ),
    (
        r"Driver/library version mismatch",
        (
            "the kernel runs another driver than the libraries are of",
            "restart the host: the module on the disk is loaded then",
        ),
    ),
    (
        r"don't match with driver version|does not match.*driver",
        (
            "the fabric manager is not of the driver's version",
            "install the package of exactly that version, then `systemctl restart nvidia-fabricmanager`",
        ),
    ),
    (
        r"system not yet initialized|Fabric State.*In Progress",
        (
            "GPUs wait for the fabric manager",
            "read `journalctl -u nvidia-fabricmanager` on the host",
        ),
    ),
    (
        r"infoROM is corrupted",
        ("the information memory of a GPU is corrupt", "let the vendor replace the GPU"),
    ),
    (
        r"unmet dependencies|nothing provides",
        (
            "the archive has the kernel modules for another driver than this version: prebuilt ones are "
            "there for the newest of a branch alone",
            "write the driver.version that the archive has now (`apt-cache policy "
            "nvidia-utils-<branch>-server`), or driver.packages: nvidia, which builds modules on the host",
        ),
    ),
    (
        r"Unable to locate package|was not found|Unable to find a match|missing groups or modules"
        r"|Package '.*' not found",
        (
            "no repository of the host has this package",
            "set up the repository (Ubuntu: restricted and multiverse; the RHEL family and SLES: NVIDIA's "
            "CUDA repository) or its mirror, and check that it has this version for the kernel that runs",
        ),
    ),
    (
        r"not possible to switch enabled streams",
        (
            "another stream of the module nvidia-driver is enabled",
            "run again: it is reset first; if it comes back, `dnf module reset nvidia-driver` by hand",
        ),
    ),
    (
        r"Could not get lock|Failed to obtain .*lock|System management is locked",
        (
            "another program installs packages there",
            "wait until it has ended (most often unattended-upgrades), then run again",
        ),
    ),
    (
        r"No such device|No devices were found",
        (
            "the driver does not serve any GPU of this machine",
            "read `dmesg | grep NVRM` there: another driver has the GPUs, or this one does not know them",
        ),
    ),
    (
        r"couldn't communicate with the NVIDIA driver|Module nvidia not found",
        (
            "the kernel has not loaded the driver",
            "look whether a module for the kernel that runs is there (`modinfo nvidia`, `dkms status`)",
        ),
    ),
    (
        r"Unknown symbol|Invalid module format|bad exit status",
        (
            "the module was not built for the kernel that runs",
            "install the headers of this very kernel and look at `dkms status`",
        ),
    ),
)


def explain(text: str) -> Reason | None:
    """The cause that a text names; None if it names none that is known."""
    for pattern, reason in _TABLE:
        if re.search(pattern, text):
            return reason
    return None
