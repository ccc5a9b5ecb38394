"""What a check of a machine gets to see, and how it says what it found. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from gpuclusters.core import codes
from gpuclusters.core.finding import Finding, Level
from gpuclusters.domain.preflight_expects import Expects, Stage
from gpuclusters.domain.preflight_facts import HostFacts, PciFact

AREA = "preflight."
WARNINGS = frozenset(
    {"fuser-missing", "kernel-old", "libvirt-old", "numa-nodes", "qemu-old", "reset-missing"}
)
"""What `up` tells and goes on; it stops at everything else."""
ONLY_PREPARED = frozenset(
    {
        "driver-loaded", "fabric-client-missing", "fabric-failed", "fabric-initialising", "fabric-mode",
        "fabric-modules", "fabric-partitions", "fabric-unreachable", "fabric-version", "huge-pages-short",
        "iommufd-missing", "kvm-missing", "libvirt-missing", "not-on-vfio", "ovmf-missing", "qemu-missing",
        "vfio-node-missing",
    }
)  # fmt: skip
"""What preparation puts right, so that nobody looks for it before."""
ONLY_BARE = frozenset({"gpus-in-use", "no-package-manager"})
"""What matters only to preparation."""


def stages(code: str) -> frozenset[Stage]:
    """When a fault is looked for."""
    name = code.removeprefix(AREA)
    if name in ONLY_PREPARED:
        return frozenset({Stage.PREPARED})
    return frozenset({Stage.BARE}) if name in ONLY_BARE else frozenset(Stage)


def wrong(name: str, read: str, expected: str) -> Finding:
    """A fault of a machine.

    Args:
        name: of the code, without its area.
        read: what was read, and of what.
        expected: what should have been read.
    """
    code = AREA + name
    level = Level.WARN if name in WARNINGS else Level.BLOCK
    return Finding(code, f"{read}; expected {expected}", codes.listed()[code].do, level=level)


def text(finding: Finding) -> str:
    """All about a finding, in a few lines for people."""
    about = codes.listed()[finding.code]
    return (
        f"  {finding.code}: {finding.problem}\n"
        f"    cause: {about.means}\n"
        f"    do: {about.do}\n"
        f"    source: {about.source}"
    )


@dataclass(frozen=True, slots=True)
class Look:
    """One machine under examination."""

    facts: HostFacts
    expects: Expects
    stage: Stage

    def configured(self) -> Iterator[PciFact]:
        """The functions of the configuration that are on the machine."""
        for address in self.expects.functions:
            if address in self.facts.functions:
                yield self.facts.functions[address]

    def gpus(self) -> Iterator[PciFact]:
        """The GPUs of the configuration that are on the machine."""
        for address in self.expects.gpus.values():
            if address in self.facts.functions:
                yield self.facts.functions[address]


Check: TypeAlias = Callable[[Look], Iterator[Finding]]
