"""Row 24: a cluster that is made with RKE2 can be made, and its settings do not contradict each other."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config import places, rke2_checks
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import finding, show
from gpuclusters.config.kubernetes import ContainerdConfigVersion, Distribution, Rke2Kubernetes
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Level, Path
from gpuclusters.domain import rke2, rke2_matrix
from gpuclusters.domain.rke2_cilium import PolicyEnforcement
from gpuclusters.domain.rke2_matrix import DropIns

_PREFIX: Path = ("kubernetes",)


def _rke2(config: CaasConfig) -> Rke2Kubernetes | None:
    return config.kubernetes if isinstance(config.kubernetes, Rke2Kubernetes) else None


@rule(24, "rke2.network-too-small")
def networks_have_room(config: CaasConfig) -> Iterable[Finding]:
    cluster = _rke2(config)
    if cluster is None:
        return
    names = {node.name for node in config.nodes} | {server.name for server in cluster.servers}
    yield from rke2_checks.room(
        ("pod-cidr", cluster.pod_cidr), cluster.service_cidr, len(names), _PREFIX
    )


@rule(24, "rke2.machine-in-cluster-network")
def machines_are_outside_of_the_clusters_networks(config: CaasConfig) -> Iterable[Finding]:
    cluster = _rke2(config)
    if cluster is None:
        return
    ranges = {"pod-cidr": cluster.pod_cidr, "service-cidr": cluster.service_cidr}
    yield from rke2_checks.outside(places.machines(config), ranges, _PREFIX)


@rule(24, "caas.drop-ins-not-imported")
def containerd_imports_its_drop_ins(config: CaasConfig) -> Iterable[Finding]:
    cluster = _rke2(config)
    if cluster is None:
        return
    if rke2_matrix.drop_ins(rke2.parse_version(cluster.version)) is DropIns.NO:
        table = rke2_matrix.matrix().rke2.drop_ins
        likely = ", ".join(table[DropIns.LIKELY][minor] for minor in sorted(table[DropIns.LIKELY]))
        yield finding(
            ("kubernetes", "version"),
            "writes a containerd configuration that imports no drop-ins: those of Kata and of this program "
            "would be ignored",
            show(cluster.version),
            f"write v1.{min(table[DropIns.CONFIRMED])} or newer; not confirmed: from {likely} on",
        )
    if cluster.containerd.config_version is not ContainerdConfigVersion.V3:
        yield finding(
            ("kubernetes", "containerd", "config-version"),
            "is not that of RKE2's containerd: a drop-in with it would be ignored silently",
            show(cluster.containerd.config_version.value),
            "remove it, or write 3",
        )
    if cluster.containerd.enable_cdi:
        yield finding(
            ("kubernetes", "containerd", "enable-cdi"),
            "is on, and RKE2's containerd reads CDI by itself",
            "true",
            "remove it",
        )
    if cluster.distribution is not Distribution.RKE2:
        yield finding(
            ("kubernetes", "distribution"),
            "is another one than kubernetes.source",
            show(cluster.distribution.value),
            "remove it",
        )


@rule(24, "caas.drop-ins-unconfirmed", level=Level.WARN)
def drop_ins_are_confirmed(config: CaasConfig) -> Iterable[Finding]:
    cluster = _rke2(config)
    if cluster is None:
        return
    version = rke2.parse_version(cluster.version)
    known = version.minor <= rke2_matrix.newest_minor()
    if known and rke2_matrix.drop_ins(version) is DropIns.LIKELY:
        first = min(rke2_matrix.matrix().rke2.drop_ins[DropIns.CONFIRMED])
        yield finding(
            ("kubernetes", "version"),
            "likely imports containerd's drop-ins, which was not confirmed; `up` ends on the first machine "
            "where it does not",
            show(cluster.version),
            f"write v1.{first} or newer, or go on",
        )


@rule(24, "rke2.default-runtime")
def no_default_runtime(config: CaasConfig) -> Iterable[Finding]:
    cluster = _rke2(config)
    if cluster is not None:
        yield from rke2_checks.no_default_runtime(cluster, _PREFIX)


@rule(24, "rke2.environment-variable")
def variables_are_those_of_a_proxy(config: CaasConfig) -> Iterable[Finding]:
    cluster = _rke2(config)
    if cluster is not None:
        yield from rke2_checks.variables(cluster, _PREFIX)


@rule(24, "caas.rke2-release-unknown", level=Level.WARN)
def the_release_is_known(config: CaasConfig) -> Iterable[Finding]:
    cluster = _rke2(config)
    newest = rke2_matrix.newest_minor()
    if cluster is not None and rke2.parse_version(cluster.version).minor > newest:
        yield finding(
            ("kubernetes", "version"),
            f"is newer than v1.{newest}, the last one that was read about here",
            show(cluster.version),
            "read its release notes for changes of Cilium, containerd and ingress before you apply it",
        )


@rule(24, "caas.policy-closes-system", level=Level.WARN)
def always_closes_the_system_too(config: CaasConfig) -> Iterable[Finding]:
    cluster = _rke2(config)
    if cluster is not None and cluster.cilium.policy_enforcement is PolicyEnforcement.ALWAYS:
        yield finding(
            ("kubernetes", "cilium", "policy-enforcement"),
            "closes system pods too, CoreDNS among them, until policies open them",
            '"always"',
            "write default: tenants are closed by the policy of all tenants either way",
        )
