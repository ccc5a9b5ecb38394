"""Row 33: RKE2, its containerd, the GPU Operator and the operating systems were validated together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuclusters.compat import rke2_matrix
from gpuclusters.compat.rke2_matrix import Major, OperatingSystem, operator_major
from gpuclusters.compat.versions import parse_release
from gpuclusters.config.fault import finding, show
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Level, Path
from gpuclusters.rke2 import releases


def _minor(text: str) -> int:
    return int(text.partition(".")[2])


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


@rule(33, "rke2.kubernetes-unsupported")
def the_release_is_in_the_operators_matrix(config: Rke2Config) -> Iterable[Finding]:
    known = rke2_matrix.major(config.operator.version)
    if known is None:
        return
    minor = releases.parse_version(config.version).minor
    first, last = known.kubernetes
    if not _minor(first) <= minor <= _minor(last):
        fitting = [
            name
            for name, one in rke2_matrix.operators().majors.items()
            if _minor(one.kubernetes[0]) <= minor <= _minor(one.kubernetes[1])
        ]
        other = f", or operator.version of {' or '.join(fitting)}" if fitting else ""
        yield finding(
            ("version",),
            f"is Kubernetes 1.{minor}, and GPU Operator {operator_major(config.operator.version)} was "
            f"validated on {first} to {last}",
            show(config.version),
            f"write a release of v{first} to v{last}{other}",
        )


@rule(33, "rke2.containerd-unsupported")
def its_containerd_is_one_that_the_operator_knows(config: Rke2Config) -> Iterable[Finding]:
    version = releases.parse_version(config.version)
    brings = rke2_matrix.containerd(version)
    known = rke2_matrix.major(config.operator.version)
    if known is None or brings is None:
        return
    if known.cdi_default and brings < (2, 0):
        yield finding(
            ("version",),
            f"brings containerd {_dotted(brings)}, and GPU Operator "
            f"{operator_major(config.operator.version)} gives GPUs to containers by CDI: RKE2 needs "
            "containerd 2 for it",
            show(config.version),
            "write v1.31.6, v1.32.2, or anything from v1.33 on",
        )


@rule(33, "rke2.containerd-not-validated", level=Level.WARN)
def its_containerd_is_in_the_operators_range(config: Rke2Config) -> Iterable[Finding]:
    brings = rke2_matrix.containerd(releases.parse_version(config.version))
    known = rke2_matrix.major(config.operator.version)
    if known is None or brings is None:
        return
    first, last = (parse_release(text) or () for text in known.containerd)
    if brings[:2] > last or (brings[:2] < first and not known.cdi_default):
        yield finding(
            ("version",),
            f"brings containerd {_dotted(brings)}, and GPU Operator "
            f"{operator_major(config.operator.version)} was validated with {' to '.join(known.containerd)}",
            show(config.version),
            "choose another release, or try it on one pool first",
        )


@rule(33, "rke2.release-unknown", level=Level.WARN)
def releases_are_known(config: Rke2Config) -> Iterable[Finding]:
    version = releases.parse_version(config.version)
    if rke2_matrix.containerd(version) is None:
        yield finding(
            ("version",),
            f"is of a minor that was not read about here, as of {rke2_matrix.matrix().as_of}",
            show(config.version),
            "read its release notes for changes of containerd, CNI and ingress before you apply it",
        )
    table = rke2_matrix.operators()
    if config.operator.version not in table.releases:
        major = rke2_matrix.major(config.operator.version)
        what = "is a patch" if major is not None else "is of a major release"
        yield finding(
            ("operator", "version"),
            f"{what} that was not read about here, as of {table.as_of}",
            show(config.operator.version),
            f"write one of {', '.join(table.releases)}, or read its release notes first",
        )


@rule(33, "rke2.operator-end-of-support", level=Level.WARN)
def the_operator_is_supported(config: Rke2Config) -> Iterable[Finding]:
    known = rke2_matrix.major(config.operator.version)
    if known is not None and known.status == "ended":
        newest = list(rke2_matrix.operators().releases)[-1]
        yield finding(
            ("operator", "version"),
            f"gets no fixes any more, as of {rke2_matrix.operators().as_of}",
            show(config.operator.version),
            f"go on to {newest}, by one major release at a time",
        )


def _systems(config: Rke2Config) -> Iterator[tuple[Path, OperatingSystem]]:
    if config.operating_system is not None:
        yield ("operating-system",), config.operating_system
    for number, pool in enumerate(config.pools):
        if pool.operating_system is not None:
            yield ("pools", number, "operating-system"), pool.operating_system


@rule(33, "rke2.system-unsupported", each=["pools"])
def the_operating_system_is_in_the_operators_matrix(config: Rke2Config) -> Iterable[Finding]:
    known = rke2_matrix.major(config.operator.version)
    for path, system in _systems(config) if known is not None else ():
        if known is not None and system.family != "rocky" and not _validated(known, system):
            names = ", ".join((*known.operating_systems, *known.partner))
            yield finding(
                path,
                f"is none that GPU Operator {operator_major(config.operator.version)} was validated on",
                show(system.value),
                f"write one of {names}, or another operator.version",
            )


def _validated(known: Major, system: OperatingSystem) -> bool:
    return system in (*known.operating_systems, *known.partner)


@rule(33, "rke2.system-not-validated", each=["pools"], level=Level.WARN)
def somebody_validated_the_operating_system(config: Rke2Config) -> Iterable[Finding]:
    known = rke2_matrix.major(config.operator.version)
    for path, system in _systems(config):
        if system.family == "rocky":
            yield finding(
                path,
                "is in NVIDIA's matrix for plain Kubernetes, not for RKE2",
                show(system.value),
                "write rhel, or know that a fault there is yours to find",
            )
        elif known is not None and system in known.partner:
            yield finding(
                path,
                "is validated by its vendor, on one release of Kubernetes and two GPUs",
                show(system.value),
                "ask SUSE before you ask NVIDIA",
            )
