"""NVIDIA's driver on a host: what it must be, and what is there.

Sources: NVIDIA's driver installation guide (packages, kernel modules, version locking), its Fabric Manager
User Guide (the manager has exactly the driver's version), Ubuntu's archive, SUSE's signed open modules, and
the driver's README (`/proc/driver/nvidia/version`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpuclusters.boot.model import RebootPolicy
from gpuclusters.core.facts import Facts, Yes
from gpuclusters.domain.text import matches
from gpuclusters.host.model import HostConnection

STATE = "/var/lib/gpu-clusters/driver"
MARK = "# Written by gpu-clusters; changes are put back."
NOUVEAU_FILE = "/etc/modprobe.d/gpu-clusters-nouveau.conf"
UPGRADES_FILE = "/etc/apt/apt.conf.d/52gpu-clusters-driver"
FABRIC_MANAGER = "nvidia-fabricmanager.service"
OPEN_LICENCE = "Dual MIT/GPL"

NOUVEAU = f"{MARK}\nblacklist nouveau\nblacklist nova_core\noptions nouveau modeset=0\n"
"""NVIDIA's driver installation guide: both lines, and a new initramfs."""
UPGRADES = (
    f"{MARK.replace('#', '//')}\n"
    "// A kernel that comes by itself has no module of the driver, and a driver that comes by itself is not\n"
    "// the one that runs.\n"
    'Unattended-Upgrade::Package-Blacklist { "linux-"; "nvidia-"; "libnvidia-"; };\n'
)


class DriverSource(StrEnum):
    """Who installs the driver."""

    HOST = "host"
    """Packages on the host."""
    OPERATOR = "operator"
    """Containers of the GPU Operator; the host only lets them."""


class Modules(StrEnum):
    """Which kernel modules."""

    OPEN = "open"
    PROPRIETARY = "proprietary"


class PackageSource(StrEnum):
    """Whose packages."""

    DISTRIBUTION = "distribution"
    NVIDIA = "nvidia"


class GpuDriverInputs(BaseModel):
    """Inputs of the driver on one host."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connection: HostConnection
    source: DriverSource = DriverSource.HOST
    version: (
        Annotated[
            str,
            matches(r"[0-9]{3}\.[0-9]{1,3}(\.[0-9]{1,3})?", "write all its numbers: 580.178.04"),
        ]
        | None
    ) = None
    """Exact version; with `source: operator` there is none."""
    modules: Modules = Modules.OPEN
    packages: PackageSource = PackageSource.DISTRIBUTION
    gpus: Annotated[int, Field(ge=1, le=64)]
    """How many the machine has."""
    nvswitch: bool = False
    """Whether they are behind NVSwitches, so that the host runs the fabric manager."""
    reboot: RebootPolicy = RebootPolicy.ALLOW
    reboot_timeout_seconds: Annotated[int, Field(ge=1, le=7200)] = 1200
    control: tuple[HostConnection, ...] = ()
    """Servers of the cluster that the host may already be a node of: there it is drained before."""
    node_name: str = ""
    drain_timeout_seconds: Annotated[int, Field(ge=1, le=86_400)] = 600
    adopt: bool = False

    @model_validator(mode="after")
    def _fits_together(self) -> GpuDriverInputs:
        if (self.version is None) is (self.source is DriverSource.HOST):
            raise ValueError(
                "version: the driver of the host has one, like 580.178.04; the operator's is not the host's"
            )
        if self.control and not self.node_name:
            raise ValueError("node_name: say which node of the cluster the host is")
        if any(one.host == self.connection.host for one in self.control):
            raise ValueError("control: a host cannot vouch for itself; leave it out")
        return self

    @property
    def natural_id(self) -> str:
        """`host/driver`."""
        return f"{self.connection.host}/driver"

    @property
    def branch(self) -> int:
        """The first number of the version; 0 without one."""
        return int((self.version or "0").partition(".")[0])

    @property
    def digest(self) -> str:
        """Of all that decides how the driver is installed."""
        known = [self.source, self.version, self.modules, self.packages, self.nvswitch]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedDriver:
    """The driver of a host of a rootless cluster."""

    version: str
    """Exact, of branch 580 for a V100."""
    modules: Literal["open", "proprietary"]
    packages: Literal["distribution", "nvidia"]
    may_reboot: bool
    reboot_timeout_seconds: int


class Gpu(NamedTuple):
    """A GPU on the bus."""

    address: str
    pci_id: str
    driver: str = ""
    """The kernel's driver that has it; empty: none."""


class LiveDriver(Facts):
    """What is on a host: what `gpuclusters/driver/scripts/inspect.sh` prints."""

    system: str = ""
    """ID of /etc/os-release."""
    family: str = ""
    """`debian`, `rhel` or `suse`."""
    release: str = ""
    """VERSION_ID."""
    kernel: str = ""
    architecture: str = ""
    boot_id: str = ""
    command_line: str = ""
    gpu: tuple[Gpu, ...] = ()
    switch: tuple[str, ...] = ()
    nouveau: Yes = False
    nvrm: str = ""
    """First line of /proc/driver/nvidia/version; empty where no driver is loaded."""
    module: str = ""
    """Version of the module on the disk, for the kernel that runs."""
    licence: str = ""
    package: Mapping[str, str] = {}
    """Installed ones that may belong to a driver or its kernel."""
    held: frozenset[str] = frozenset()
    stream: str = ""
    """Module stream of dnf that is enabled for the driver."""
    foreign: tuple[str, ...] = ()
    """Drivers that came by no package."""
    shown: tuple[str, ...] = ()
    """Names of the GPUs that `nvidia-smi` shows."""
    smi: int = 127
    """Its exit status; 127 without it."""
    smi_said: str = ""
    """What it printed when it failed."""
    user: tuple[str, ...] = ()
    """Processes that compute on a GPU, as `pid name`."""
    fabric_manager: str = ""
    """systemd's state of it."""
    fabric_enabled: Yes = False
    secure_boot: Yes = False
    reboot_required: Yes = False
    """Whether the system says that something waits for a boot: most often a kernel."""
    node: Yes = False
    """Whether RKE2 or a kubelet runs on it."""
    initramfs: str = ""
    """Digest with which we built it last."""
    applied: str = ""
    """Digest of the inputs that it was last brought to."""
    file: Mapping[str, str] = {}
    """sha256 of our files by path."""
    free_mib: int = 1_000_000
    """Space in /var and /boot, the smaller of both."""

    @property
    def loaded(self) -> str:
        """Version that the kernel runs; empty: none."""
        found = _NVRM.search(f"{self.nvrm} ")
        return found[1] if found else ""

    @property
    def loaded_open(self) -> bool:
        """Whether the modules that it runs are open."""
        return "Open Kernel Module" in self.nvrm

    @property
    def product(self) -> str:
        """The name of its GPUs as `nvidia-smi` says it; empty while it says none."""
        return self.shown[0] if self.shown else ""


_NVRM = re.compile(r"NVRM version: .*?\s([0-9]{3}(?:\.[0-9]+)+)\s")
