"""What fits together: releases of RKE2 and of the GPU Operator, operating systems, branches of the driver.

A release in none of the tables is not wrong: nobody has read about it, which is a warning and not a fault.
"""

from collections.abc import Mapping
from datetime import date
from enum import StrEnum
from functools import cache, partial

from gpuclusters.compat.dated_table import Row, Table
from gpuclusters.compat.gpu_products import Architecture
from gpuclusters.compat.versions import Release, release
from gpuclusters.rke2 import releases

ENDED = "ended"


class ModulesPolicy(StrEnum):
    """Which kernel modules of the driver."""

    AUTO = "auto"
    """By the architecture of the GPUs."""
    OPEN = "open"
    """From Turing on; the only ones for Blackwell."""
    PROPRIETARY = "proprietary"
    """The only ones before Turing; gone from branch 620 on."""


class OperatingSystem(StrEnum):
    """Operating systems of hosts, by major release, as NVIDIA's support matrix names them."""

    UBUNTU_22_04 = "ubuntu-22.04"
    UBUNTU_24_04 = "ubuntu-24.04"
    UBUNTU_26_04 = "ubuntu-26.04"
    RHEL_8 = "rhel-8"
    RHEL_9 = "rhel-9"
    RHEL_10 = "rhel-10"
    ROCKY_8 = "rocky-8"
    ROCKY_9 = "rocky-9"
    ROCKY_10 = "rocky-10"
    SLES_15 = "sles-15"
    SLES_16 = "sles-16"

    @property
    def family(self) -> str:
        """`ubuntu`, `rhel`, `rocky` or `sles`."""
        return self.value.partition("-")[0]

    @property
    def image_tag(self) -> str:
        """What a driver container's tag ends with: `ubuntu24.04`, `rhel9`, `sles15`."""
        return self.value.replace("-", "")


class Branch(Row):
    long: bool
    end: str
    """Month of its last fixes, `2028-06`, or `ended`."""
    newest: str
    oldest: Architecture
    """First generation of GPUs that it knows."""

    def is_over(self, by: date) -> bool:
        """Whether its last fixes are past."""
        return self.end == ENDED or self.end < f"{by:%Y-%m}"


class Cuda(Row):
    branch: int
    """First branch of the driver that runs it."""
    oldest: Architecture
    """First generation of GPUs that it still has code for."""


class Modules(Row):
    """Where it is decided which kernel modules a driver can have."""

    open_from: Architecture
    open_only_from: Architecture
    auto_from: str
    """First driver whose container understands `auto`."""
    proprietary_until: int
    """Last branch that has proprietary modules."""


class Fault(Row):
    """Drivers with a fault that is known."""

    first: str
    last: str
    what: str


class DropIns(StrEnum):
    """Whether the containerd of a release of RKE2 imports `config-v3.toml.d/*.toml`."""

    CONFIRMED = "confirmed"
    """The line was seen in that minor."""
    LIKELY = "likely"
    """It is newer than the change of K3s that brought the line, and was not looked into."""
    NO = "no"


class _Rke2(Row):
    channels: Mapping[str, str]
    """`stable` and `newest`."""
    drop_ins: Mapping[DropIns, Mapping[int, str]]
    """By minor of Kubernetes: the first release."""
    containerd: Mapping[int, Mapping[str, str]]


class Matrix(Table):
    """Releases of RKE2 and drivers."""

    rke2: _Rke2
    drivers: Mapping[int, Branch]
    kernel_modules: Modules
    cuda: Mapping[int, Cuda]
    known_faults: Mapping[str, Fault]


class Major(Row):
    """A major release of the GPU Operator, as far as RKE2 is concerned."""

    status: str
    kubernetes: tuple[str, str]
    containerd: tuple[str, str]
    operating_systems: tuple[OperatingSystem, ...]
    partner: tuple[OperatingSystem, ...] = ()
    """Validated by their vendor."""
    precompiled: Mapping[OperatingSystem, tuple[int, ...]]
    drivers: tuple[str, ...]
    cdi_default: bool
    """Whether CDI is how GPUs get into containers; before, a runtime class had to."""
    nri: tuple[str, ...] = ()
    """Versions of containerd with which its NRI plugin works; none if it has no such plugin."""


class OperatorRelease(Row):
    date: date
    default_driver: str
    node_feature_discovery: str
    images: Mapping[str, str]
    """By the chart's key: repository/image:tag."""


class Operators(Table):
    majors: Mapping[str, Major]
    releases: Mapping[str, OperatorRelease]


matrix = cache(partial(Matrix.packaged, "rke2_matrix"))
operators = cache(partial(Operators.packaged, "gpu_operator_releases"))


def containerd(version: releases.Version) -> Release | None:
    """The containerd of a release of RKE2, at least; None if nobody has read about its minor."""
    rows = matrix().rke2.containerd.get(version.minor, {}).items()
    brings = [text for first, text in rows if releases.parse_version(first) <= version]
    return release(brings[-1]) if brings else None


def newest_minor() -> int:
    """The newest minor of Kubernetes whose RKE2 was read about; newer ones are warned of, not refused."""
    return max(matrix().rke2.containerd)


def drop_ins(version: releases.Version) -> DropIns:
    """Whether containerd reads drop-ins beside its configuration; minors newer than the table likely do."""
    for known in (DropIns.CONFIRMED, DropIns.LIKELY):
        first = matrix().rke2.drop_ins[known].get(version.minor)
        if first is not None and releases.parse_version(first) <= version:
            return known
    return DropIns.LIKELY if version.minor > newest_minor() else DropIns.NO


def operator_major(version: str) -> str:
    """`26.7` of `v26.7.0`."""
    return ".".join(version.removeprefix("v").split(".")[:2])


def major(version: str) -> Major | None:
    """What is known of a release's major; None if nothing."""
    return operators().majors.get(operator_major(version))


def branch_of(driver: str) -> int:
    """The branch of a driver: 580 of 580.173.02."""
    return int(driver.partition(".")[0])


def branch(number: int) -> Branch | None:
    """A branch of the driver; None if nobody has read about it."""
    return matrix().drivers.get(number)


def newest_cuda(driver: int) -> int | None:
    """Newest major of CUDA whose images run on a branch of the driver; None if it is older than all."""
    return max((n for n, one in matrix().cuda.items() if one.branch <= driver), default=None)


def last_branch_for(one: Architecture) -> int:
    """The last branch that knows GPUs of this generation."""
    return max(n for n, found in matrix().drivers.items() if not one.is_before(found.oldest))


def newest_branch_for(oldest: Architecture, least: int = 0) -> int:
    """The branch to take where none is stated: the newest with long support that knows these GPUs.

    `least`: the branch that the youngest of them needs. A branch that has no more fixes counts last.
    """
    table = matrix()
    known = [
        number
        for number, one in table.drivers.items()
        if not oldest.is_before(one.oldest) and number >= least
    ] or [max(table.drivers)]
    rank = {n: (not one.is_over(table.as_of), one.long, n) for n, one in table.drivers.items()}
    return max(known, key=rank.__getitem__)


def newest_driver(number: int, operator: str | None = None) -> str:
    """The version to take of a branch: the newest of it; for an `operator`, in its component matrix."""
    of_operator = major(operator) if operator else None
    drivers = of_operator.drivers if of_operator else ()
    listed = [text for text in drivers if branch_of(text) == number]
    return max(listed, key=release) if listed else matrix().drivers[number].newest


def module_problem(modules: ModulesPolicy, driver: int, one: Architecture) -> str | None:
    """Why GPUs of this generation cannot run with these kernel modules of a branch; None if they can."""
    rules = matrix().kernel_modules
    if modules is ModulesPolicy.OPEN and one.is_before(rules.open_from):
        needed = "have no GPU System Processor, which open modules need"
        return f"{needed}: {one} is older than {rules.open_from}"
    if modules is ModulesPolicy.PROPRIETARY and not one.is_before(rules.open_only_from):
        return f"are known to open modules only, as every GPU from {rules.open_only_from} on"
    if modules is ModulesPolicy.PROPRIETARY and driver > rules.proprietary_until:
        return f"would need modules that branch {driver} no longer has"
    return None


def modules_for(one: Architecture) -> ModulesPolicy:
    """The kernel modules that GPUs of this generation should have: open wherever they can."""
    old = one.is_before(matrix().kernel_modules.open_from)
    return ModulesPolicy.PROPRIETARY if old else ModulesPolicy.OPEN
