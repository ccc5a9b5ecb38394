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
from typing import Annotated, Any, NamedTuple

from pydantic import Field, model_validator

from gpuclusters.boot.model import RebootPolicy
from gpuclusters.core.facts import Facts, Yes
from gpuclusters.core.model import Strict, matches
from gpuclusters.host.model import HostConnection

STATE = "/var/lib/gpu-clusters/driver"
MARK = "# Written by gpu-clusters; changes are put back."
NOUVEAU_FILE = "/etc/modprobe.d/gpu-clusters-nouveau.conf"
UPGRADES_FILE = "/etc/apt/apt.conf.d/52gpu-clusters-driver"
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
    HOST = "host"
    OPERATOR = "operator"
    """Containers of the GPU Operator; the host only lets them."""


class Modules(StrEnum):
    OPEN = "open"
    PROPRIETARY = "proprietary"


class PackageSource(StrEnum):
    DISTRIBUTION = "distribution"
    """The operating system's own: on Ubuntu with signed, prebuilt kernel modules."""
    NVIDIA = "nvidia"
    """NVIDIA's repository for the operating system: every branch, modules built on the host by DKMS."""


class GpuDriverInputs(Strict):
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


class WantedDriver(Strict):
    """The driver that this program installs on a host."""

    version: str
    modules: Modules
    packages: PackageSource
    nvswitch: bool = False
    """Whether the fabric manager has to run, in exactly the driver's version."""
    reboot: RebootPolicy
    reboot_timeout_seconds: int

    def inputs(self) -> dict[str, Any]:
        return {"source": DriverSource.HOST.value, **self.model_dump(mode="json")}


class Gpu(NamedTuple):
    address: str
    pci_id: str
    driver: str = ""
    """The kernel's driver that has it; empty: none."""


class LiveDriver(Facts):
    """What is on a host: what `gpuclusters/driver/scripts/inspect.sh` prints."""

    system: str = ""
    family: str = ""
    """`debian`, `rhel` or `suse`."""
    release: str = ""
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
    smi: int = 127
    """Its exit status; 127 without it."""
    smi_said: str = ""
    user: tuple[str, ...] = ()
    """Processes that compute on a GPU, as `pid name`."""
    fabric_manager: str = ""
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


# Which packages make a driver, by operating system.

_RENAMED = 590
"""From this branch on NVIDIA's packages for Ubuntu have no branch in their names; one with a branch is
virtual there, which apt does not install at a version (NVIDIA driver installation guide 620, Ubuntu)."""
FABRIC_MANAGER = "nvidia-fabricmanager"
_LAST_STREAMS = 9
"""The RHEL family's last major release with module streams."""


@dataclass(frozen=True, slots=True)
class Packages:
    wanted: tuple[tuple[str, str], ...]
    """Name and version; a version may end in `*`, and is empty for whatever fits the others."""
    held: tuple[str, ...]
    """What must not be upgraded by itself, beside the kernel."""
    stream: str = ""
    signed: bool = False
    """Whether the modules are signed by the distribution, so that Secure Boot takes them."""
    fabric_manager: str = ""
    """Name of the fabric manager's package; empty without one."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.wanted)

    def missing(self, live: LiveDriver) -> tuple[str, ...]:
        """Packages that are not there in their version."""
        return tuple(n for n, version in self.wanted if not _fits(live.package.get(n), version))


def _fits(has: str | None, wanted: str) -> bool:
    if has is None:
        return False
    # The epoch of an RPM or of Debian is not part of the driver's version.
    has = has.rpartition(":")[2]
    begins = wanted.endswith("*") and has.startswith(wanted[:-1])
    return begins or wanted in ("", has)


_OF_A_DRIVER = re.compile(
    r"nvidia-(driver|utils|dkms|headless|open|compute-utils)\b.*|cuda-drivers.*|kmod-nvidia-.*"
)


def others(live: LiveDriver, version: str = "") -> tuple[str, ...]:
    """Drivers that are there and are not of this version; of any version without one."""
    found = [
        name
        for name, has in live.package.items()
        if _OF_A_DRIVER.fullmatch(name) and not (version and _fits(has, f"{version}*"))
    ]
    return (*sorted(found), *live.foreign)


def kernels(live: LiveDriver) -> tuple[str, ...]:
    """Installed packages that would bring another kernel.

    The operator's containers need the headers of this one as much as modules on the host do.
    """
    virtual = ("linux-image-generic", "linux-generic", "linux-image-virtual", "linux-virtual")
    names = {
        "debian": (f"linux-image-{live.kernel}", *virtual),
        "rhel": ("kernel", "kernel-core"),
        "suse": ("kernel-default",),
    }
    return tuple(name for name in names.get(live.family, ()) if name in live.package)


def fabric_manager(branch: int, *, of_ubuntu: bool) -> str:
    """Name of the fabric manager's package for Ubuntu; Ubuntu's own archive names every branch."""
    with_branch = of_ubuntu or branch < _RENAMED
    return f"{FABRIC_MANAGER}-{branch}" if with_branch else FABRIC_MANAGER


def packages(inputs: GpuDriverInputs, live: LiveDriver) -> Packages:
    """The packages of this driver; a ValueError says what is possible instead."""
    version, branch, is_open = inputs.version or "", inputs.branch, inputs.modules is Modules.OPEN
    exact = f"{version}*"
    name = "nvidia-open" if is_open else "cuda-drivers"
    manager, stream, signed = FABRIC_MANAGER, "", False
    match live.family, inputs.packages:
        case "debian", PackageSource.DISTRIBUTION if live.system == "ubuntu":
            suffix = "-server-open" if is_open else "-server"
            wanted = [
                (f"linux-modules-nvidia-{branch}{suffix}-{live.kernel}", ""),
                (f"nvidia-headless-no-dkms-{branch}{suffix}", exact),
                (f"nvidia-utils-{branch}-server", exact),
            ]
            held = [package for package, _ in wanted]
            manager, signed = fabric_manager(branch, of_ubuntu=True), True
        case "debian", _ if live.system == "ubuntu":
            name = f"{name}-{branch}" if branch < _RENAMED else name
            wanted, held = [(f"linux-headers-{live.kernel}", ""), (name, exact)], [name]
            manager = fabric_manager(branch, of_ubuntu=False)
        case "rhel", PackageSource.DISTRIBUTION:
            raise ValueError(
                f"{live.system} has no driver in its own packages; write driver.packages: nvidia and set up "
                "NVIDIA's repository on the host"
            )
        case "rhel", _:
            wanted = [(f"kernel-devel-{live.kernel}", ""), (name, exact)]
            wanted += [("nvidia-driver-cuda", exact)]
            held = [name, "nvidia-driver-cuda"]
            major = live.release.partition(".")[0]
            if major.isdecimal() and int(major) <= _LAST_STREAMS:
                stream = f"{branch}-{'open' if is_open else 'dkms'}"
        case "suse", _:
            kind = "nvidia-open-driver-G06-signed" if is_open else "nvidia-driver-G06"
            # The version of SUSE's modules names their kernel too: 580.178.04_k6.4.0_150700.51.
            wanted = [(f"{kind}-kmp-default", f"{version}_k*"), ("nvidia-compute-utils-G06", exact)]
            held, signed = [package for package, _ in wanted], is_open
        case _:
            raise ValueError(
                f"the driver is not installed on {live.system or 'this system'} {live.release} by this "
                "program; use Ubuntu, the RHEL family or SLES, or leave it to the operator (driver.source: "
                "operator)"
            )
    if inputs.nvswitch:
        wanted.append((manager, exact))
        held.append(manager)
    return Packages(tuple(wanted), tuple(held), stream, signed, manager if inputs.nvswitch else "")
