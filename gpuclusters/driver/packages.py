"""Which packages make a driver, by operating system: names, versions, what is held back. Pure.

Sources: Ubuntu's archive (`linux-modules-nvidia-…` are prebuilt for one kernel and signed), NVIDIA's driver
installation guide (RHEL family: module streams and `nvidia-open`; RHEL 10 has no streams), SUSE's
documentation (`nvidia-open-driver-G06-signed-kmp-default`), NVIDIA's Fabric Manager User Guide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuclusters.driver.model import GpuDriverInputs, LiveDriver, Modules, PackageSource

_RENAMED = 590
"""From this branch on NVIDIA's packages for Ubuntu have no branch in their names; one with a branch is
virtual there, which apt does not install at a version (NVIDIA driver installation guide 620, Ubuntu)."""
FABRIC_MANAGER = "nvidia-fabricmanager"
_LAST_STREAMS = 9
"""The RHEL family's last major release with module streams."""


@dataclass(frozen=True, slots=True)
class Packages:
    """What has to be installed on one host."""

    wanted: tuple[tuple[str, str], ...]
    """Name and version; a version may end in `*`, and is empty for whatever fits the others."""
    held: tuple[str, ...]
    """What must not be upgraded by itself, beside the kernel."""
    stream: str = ""
    """Module stream of dnf."""
    signed: bool = False
    """Whether the modules are signed by the distribution, so that Secure Boot takes them."""
    fabric_manager: str = ""
    """Name of the fabric manager's package; empty without one."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(name for name, _ in self.wanted)

    def missing(self, live: LiveDriver) -> tuple[str, ...]:
        """Packages that are not there in their version."""
        return tuple(
            name for name, version in self.wanted if not _fits(live.package.get(name), version)
        )


def _fits(has: str | None, wanted: str) -> bool:
    if has is None:
        return False
    # The epoch of an RPM or of Debian is not part of the driver's version.
    has = has.rpartition(":")[2]
    return (
        has.startswith(wanted.removesuffix("*"))
        if wanted.endswith("*")
        else not wanted or has == wanted
    )


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
    names = {
        "debian": (
            f"linux-image-{live.kernel}",
            "linux-image-generic",
            "linux-generic",
            "linux-image-virtual",
            "linux-virtual",
        ),
        "rhel": ("kernel", "kernel-core"),
        "suse": ("kernel-default",),
    }
    return tuple(name for name in names.get(live.family, ()) if name in live.package)


def fabric_manager(branch: int, *, of_ubuntu: bool) -> str:
    """Name of the fabric manager's package for Ubuntu.

    Args:
        branch: of the driver.
        of_ubuntu: whether it comes from Ubuntu's archive, which names every branch; else from NVIDIA's.
    """
    with_branch = of_ubuntu or branch < _RENAMED
    return f"{FABRIC_MANAGER}-{branch}" if with_branch else FABRIC_MANAGER


def packages(inputs: GpuDriverInputs, live: LiveDriver) -> Packages:
    """The packages of this driver on this operating system.

    Raises:
        ValueError: there are none; the text says which are.
    """
    version = inputs.version or ""
    if live.family == "debian" and live.system == "ubuntu":
        if inputs.packages is PackageSource.DISTRIBUTION:
            return _ubuntu(inputs, live, version)
        return _ubuntu_nvidia(inputs, live, version)
    if live.family == "rhel":
        if inputs.packages is PackageSource.DISTRIBUTION:
            raise ValueError(
                f"{live.system} has no driver in its own packages; write driver.packages: nvidia and set up "
                "NVIDIA's repository on the host"
            )
        return _rhel(inputs, live, version)
    if live.family == "suse":
        return _suse(inputs, version)
    raise ValueError(
        f"the driver is not installed on {live.system or 'this system'} {live.release} by this program; use "
        "Ubuntu, the RHEL family or SLES, or leave it to the operator (driver.source: operator)"
    )


def _ubuntu(inputs: GpuDriverInputs, live: LiveDriver, version: str) -> Packages:
    suffix = "-server-open" if inputs.modules is Modules.OPEN else "-server"
    modules = f"linux-modules-nvidia-{inputs.branch}{suffix}-{live.kernel}"
    wanted = [
        (modules, ""),
        (f"nvidia-headless-no-dkms-{inputs.branch}{suffix}", f"{version}*"),
        (f"nvidia-utils-{inputs.branch}-server", f"{version}*"),
    ]
    manager = fabric_manager(inputs.branch, of_ubuntu=True) if inputs.nvswitch else ""
    if manager:
        wanted.append((manager, f"{version}*"))
    return Packages(
        wanted=tuple(wanted),
        held=tuple(name for name, _ in wanted),
        signed=True,
        fabric_manager=manager,
    )


def _ubuntu_nvidia(inputs: GpuDriverInputs, live: LiveDriver, version: str) -> Packages:
    name = "nvidia-open" if inputs.modules is Modules.OPEN else "cuda-drivers"
    if inputs.branch < _RENAMED:
        name = f"{name}-{inputs.branch}"
    manager = fabric_manager(inputs.branch, of_ubuntu=False) if inputs.nvswitch else ""
    wanted = [(f"linux-headers-{live.kernel}", ""), (name, f"{version}*")]
    if manager:
        wanted.append((manager, f"{version}*"))
    return Packages(
        wanted=tuple(wanted),
        held=(name, *([manager] if manager else [])),
        fabric_manager=manager,
    )


def _rhel(inputs: GpuDriverInputs, live: LiveDriver, version: str) -> Packages:
    is_open = inputs.modules is Modules.OPEN
    name = "nvidia-open" if is_open else "cuda-drivers"
    stream = f"{inputs.branch}-{'open' if is_open else 'dkms'}"
    major = live.release.partition(".")[0]
    streams = major.isdecimal() and int(major) <= _LAST_STREAMS
    manager = FABRIC_MANAGER if inputs.nvswitch else ""
    wanted = [(f"kernel-devel-{live.kernel}", ""), (name, f"{version}*")]
    wanted += [("nvidia-driver-cuda", f"{version}*")]
    if manager:
        wanted.append((manager, f"{version}*"))
    return Packages(
        wanted=tuple(wanted),
        held=(name, "nvidia-driver-cuda", *([manager] if manager else [])),
        stream=stream if streams else "",
        fabric_manager=manager,
    )


def _suse(inputs: GpuDriverInputs, version: str) -> Packages:
    is_open = inputs.modules is Modules.OPEN
    modules = (
        "nvidia-open-driver-G06-signed-kmp-default" if is_open else "nvidia-driver-G06-kmp-default"
    )
    manager = FABRIC_MANAGER if inputs.nvswitch else ""
    # The version of SUSE's modules names their kernel too: 580.178.04_k6.4.0_150700.51.
    wanted = [(modules, f"{version}_k*"), ("nvidia-compute-utils-G06", f"{version}*")]
    if manager:
        wanted.append((manager, f"{version}*"))
    return Packages(
        wanted=tuple(wanted),
        held=tuple(name for name, _ in wanted),
        signed=is_open,
        fabric_manager=manager,
    )
