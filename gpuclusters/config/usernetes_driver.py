"""`driver` of a `usernetes` cluster: who installs the GPU driver on the hosts, and which."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpuclusters.boot.model import RebootPolicy
from gpuclusters.config.base import Section, Text, checked, refusal
from gpuclusters.config.rke2_cluster_driver import Packages
from gpuclusters.domain.rke2_matrix import ModulesPolicy

_VERSION = re.compile(r"[0-9]{3}\.[0-9]{1,3}(\.[0-9]{1,3})?")


def _version(value: str) -> str:
    if not _VERSION.fullmatch(value):
        raise refusal(
            "is not a version of the driver",
            'write all of its numbers in quotes, for example "580.178.04"; a branch alone would move',
        )
    return value


ExactDriver = Annotated[Text, AfterValidator(_version)]


class PackagedDriver(Section):
    """Packages on the hosts, pinned, with the kernel held. A cloud's own installer is not used."""

    source: Literal["host"]
    """Who installs the driver."""
    version: ExactDriver | None = None
    """Exact version; by default that of `versions`. Volta needs branch 580 or older."""
    packages: Packages = Packages.DISTRIBUTION
    """Whose packages: distribution or nvidia."""
    modules: ModulesPolicy = ModulesPolicy.AUTO
    """Kernel modules: open, proprietary, or auto, which decides by the GPUs. Volta needs the proprietary
    ones."""
    reboot: RebootPolicy = RebootPolicy.ALLOW
    """Whether hosts may be restarted for it: allow or refuse."""


class InstalledDriver(Section):
    """The hosts have a driver; it is checked and never changed."""

    source: Literal["installed"]
    """Who installs the driver."""
    version: Annotated[ExactDriver | None, checked(48)] = None
    """Exact version that the hosts should have. What they run is read there, and has to know the GPUs."""


RootlessDriver = Annotated[PackagedDriver | InstalledDriver, Field(discriminator="source")]
