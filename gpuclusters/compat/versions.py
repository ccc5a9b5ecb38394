"""Versions that must fit together, and how they are compared.

Sources: Kata Containers' `versions.yaml` of the release; NVIDIA's rule that fabric manager and guest
driver are of exactly the same version; release notes of Kubernetes, containerd, Linux and QEMU.
"""

import re
from collections.abc import Mapping
from datetime import date

from gpuclusters.compat.dated_table import Source

_NUMBERS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){1,3}")

Release = tuple[int, ...]

POD_RESOURCES_GET: Release = (1, 34)
"""Kubernetes from which the kubelet answers PodResources `Get` without a feature gate."""
CONTAINERD_CDI_DEFAULT: Release = (2, 0)
"""containerd from which `enable_cdi` is on unless switched off."""
CONTAINERD_EROFS: Release = (2, 2)
KERNEL_MEASURED: Release = (6, 8)
"""Kernel of the published boots: 3 to 8 seconds for a GPU's memory. Older ones are taken for as slow as Linux
5.15, which needs minutes for each GPU."""
KERNEL_HUGE_FAULTS: Release = (6, 12)
"""Kernel whose vfio-pci maps a GPU's memory into the VM by huge pages (its `huge_fault`); this program warns
of older ones."""
KERNEL_ONE_STEP: Release = (6, 15)
"""Kernel whose vfio maps that memory into the IOMMU by huge pages too (vfio type 1, "Use mapping page mask
for pfnmaps"): less than a millisecond."""
QEMU_ALIGNED_BARS: Release = (9, 2)
"""QEMU that aligns its mappings of BARs so that the kernel can use huge pages."""


_KATA = "github.com/kata-containers/kata-containers versions.yaml"
SOURCES = (Source(at=_KATA, release="4.1.0", date=date(2026, 8, 22)),)
KATA_GUEST_DRIVERS: Mapping[str, str] = {"4.1.0": "595.58.03"}
"""NVIDIA's driver in the guest image by release of Kata."""


def parse_release(text: str) -> Release | None:
    """The numbers of a pinned version, or None if the text is not one (`latest`, `4.x`, `>=1`).

    A leading `v` and what follows the numbers (`-generic`, `+rke2r1`) do not matter.
    """
    match = _NUMBERS.match(text.removeprefix("v"))
    if match is None:
        return None
    rest = text.removeprefix("v")[match.end() :]
    if rest and rest[0] not in "-+~":
        return None
    return tuple(int(part) for part in match.group().split("."))


def older(text: str, than: Release) -> bool:
    """Whether a pinned version is older; a text that is no version is not."""
    release = parse_release(text)
    return release is not None and release < than


def release(text: str) -> Release:
    """The numbers of a version that a table or a checked configuration states."""
    found = parse_release(text)
    if found is None:
        raise ValueError(f"{text!r} is not a version")
    return found
