"""The images of a GPU Operator: what a registry without access to the internet has to have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuclusters.domain.gpu_operator_values import SUSE_REPOSITORY, ContainerDriver
from gpuclusters.domain.rke2_matrix import OperatingSystem, operators

KERNEL = "<kernel>"
"""In the tag of a precompiled driver: one for each kernel that `uname -r` shows on the nodes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorImages:
    """What one release pulls in one cluster."""

    version: str
    driver: ContainerDriver | None = None
    """None: the hosts have one."""
    systems: Sequence[OperatingSystem] = ()
    """Operating systems of the nodes, which are part of a driver's tag."""
    node_feature_discovery: bool = True
    host_engine: bool = False
    mig: bool = False

    def references(self) -> tuple[str, ...]:
        """registry/name:tag of each, in order; empty if nobody has read about the release."""
        known = operators().releases.get(self.version)
        if known is None:
            return ()
        left_out = {"driver", "driver.manager"}
        left_out |= set() if self.node_feature_discovery else {"node-feature-discovery"}
        left_out |= set() if self.host_engine else {"dcgm"}
        left_out |= set() if self.mig else {"migManager"}
        found = {image for key, image in known.images.items() if key not in left_out}
        if self.driver is not None:
            found |= {
                known.images["driver.manager"],
                *self._drivers(self.driver, known.images["driver"]),
            }
        return tuple(sorted(found))

    def _drivers(self, driver: ContainerDriver, default: str) -> Iterable[str]:
        """A tag ends with the operating system; of a precompiled one the kernel comes before it."""
        for system in self.systems:
            suse = driver.precompiled and system.family == "sles"
            usual = SUSE_REPOSITORY if suse else default.rpartition("/")[0]
            kernel = f"-{KERNEL}" if driver.precompiled else ""
            yield f"{driver.repository or usual}/driver:{driver.version}{kernel}-{system.image_tag}"


def registries(references: Iterable[str]) -> tuple[str, ...]:
    """The registries that images come from: what a mirror has to stand in for."""
    return tuple(sorted({one.partition("/")[0] for one in references}))
