"""`driver` of an `rke2` cluster: who installs the GPU driver on the hosts, and which."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpuclusters.boot.model import RebootPolicy
from gpuclusters.config.base import DnsLabel, Flag, Integer, Section, Text, refusal
from gpuclusters.domain.rke2_matrix import ModulesPolicy

_VERSION = re.compile(r"[0-9]{3}\.[0-9]{1,3}(\.[0-9]{1,3})?")


def _version(value: str) -> str:
    if not _VERSION.fullmatch(value):
        raise refusal(
            "is not a version of the driver",
            'write all of its numbers in quotes, for example "580.178.04"; a branch alone is driver.branch',
        )
    return value


DriverVersion = Annotated[Text, AfterValidator(_version)]
DriverBranch = Annotated[Integer, Field(ge=400, le=999)]


class Packages(StrEnum):
    """Whose packages install the driver on a host."""

    DISTRIBUTION = "distribution"
    """The operating system's own: on Ubuntu with signed, prebuilt kernel modules."""
    NVIDIA = "nvidia"
    """NVIDIA's repository for the operating system: every branch, modules built on the host by DKMS."""


class HostDriver(Section):
    """Packages on the hosts, pinned; the operator leaves the driver alone."""

    source: Literal["host"]
    """Who installs the driver."""
    branch: DriverBranch | None = None
    """Branch, 580 for example; by default the newest one with long support that all GPUs have."""
    version: DriverVersion | None = None
    """Exact version; by default the newest one of the branch that is known here (docs/rke2.md)."""
    modules: ModulesPolicy = ModulesPolicy.AUTO
    """Kernel modules: open, proprietary, or auto, which decides by the GPUs of each pool."""
    packages: Packages = Packages.DISTRIBUTION
    """Whose packages: distribution or nvidia."""
    reboot: RebootPolicy = RebootPolicy.ALLOW
    """Whether hosts may be restarted for it: allow or refuse."""


class OperatorDriver(Section):
    """Containers of the GPU Operator, which build the kernel modules on every node."""

    source: Literal["operator"]
    """Who installs the driver."""
    branch: DriverBranch | None = None
    """Branch; by default the newest one with long support that all GPUs have."""
    version: DriverVersion | None = None
    """Exact version; by default the newest one of the branch that is known here."""
    modules: ModulesPolicy = ModulesPolicy.AUTO
    """driver.kernelModuleType: auto, open or proprietary."""
    package_mirror: DnsLabel | None = None
    """ConfigMap in the operator's namespace with the package sources of the operating system
    (driver.repoConfig), for networks without access to them."""


class PrecompiledDriver(Section):
    """Containers of the GPU Operator with modules that are built for the kernels already."""

    source: Literal["precompiled"]
    """Who installs the driver."""
    branch: DriverBranch
    """Branch; the container's tag ends with the kernel that runs."""
    repository: Text | None = None
    """Where the containers are; by default NVIDIA's, on SLES SUSE's."""
    secure_boot_signed: Flag = False
    """Whether the modules in it are signed with a key that the hosts' firmware knows."""


Driver = Annotated[HostDriver | OperatorDriver | PrecompiledDriver, Field(discriminator="source")]
