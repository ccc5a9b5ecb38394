"""`driver` of a `usernetes` cluster: who installs the GPU driver on the hosts, and which."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuclusters.config.base import Section
from gpuclusters.config.rke2_cluster_driver import DriverVersion, Packages, Reboot
from gpuclusters.domain.rke2_matrix import ModulesPolicy


class PackagedDriver(Section):
    """Packages on the hosts, pinned, with the kernel held. A cloud's own installer is not used."""

    source: Literal["host"]
    """Who installs the driver."""
    version: DriverVersion | None = None
    """Exact version; by default that of `versions`. Volta needs branch 580 or older."""
    packages: Packages = Packages.DISTRIBUTION
    """Whose packages: distribution or nvidia."""
    modules: ModulesPolicy = ModulesPolicy.AUTO
    """Kernel modules: open, proprietary, or auto, which decides by the GPUs. Volta needs the proprietary
    ones."""
    reboot: Reboot = Reboot.ALLOWED
    """Whether hosts may be restarted for it: allowed or never."""


class InstalledDriver(Section):
    """The hosts have a driver; it is checked and never changed."""

    source: Literal["installed"]
    """Who installs the driver."""
    version: DriverVersion | None = None
    """Exact version that is expected; by default every one that knows the GPUs."""


RootlessDriver = Annotated[PackagedDriver | InstalledDriver, Field(discriminator="source")]
