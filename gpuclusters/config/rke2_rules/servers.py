"""Rows 31 and 32: servers can hold a majority and are reached; networks have room and do not meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpuclusters.config import gcp_rules, rke2_checks
from gpuclusters.config.fault import finding, show
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.rke2_cluster import Canal, Flannel, Rke2Config
from gpuclusters.config.rke2_machines import agents
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Level, Path


def _addresses(config: Rke2Config) -> Mapping[str, str]:
    machines = config.hosts.machines if isinstance(config.hosts, ExistingHosts) else ()
    return {machine.name: machine.address for machine in machines}


@rule(31, "rke2.server-count")
def servers_can_hold_a_majority(config: Rke2Config) -> Iterable[Finding]:
    return rke2_checks.majority(len(config.servers), ())


@rule(31, "rke2.registration-address")
def servers_have_one_address(config: Rke2Config) -> Iterable[Finding]:
    known = _addresses(config)
    return rke2_checks.one_address(
        config.registration_address,
        {name: known.get(name) for name in config.servers},
        (),
        simulated=isinstance(config.hosts, LabHosts),
    )


@rule(31, "rke2.single-server", level=Level.WARN)
def one_server_is_no_spare(config: Rke2Config) -> Iterable[Finding]:
    if not isinstance(config.hosts, LabHosts):
        yield from rke2_checks.no_spare(len(config.servers), ())


@rule(32, "rke2.network-too-small")
def networks_have_room(config: Rke2Config) -> Iterable[Finding]:
    nodes = len(set(config.servers)) + len(agents(config))
    return rke2_checks.room(("cluster-cidr", config.cluster_cidr), config.service_cidr, nodes, ())


@rule(32, "rke2.networks-overlap")
def cluster_networks_do_not_meet(config: Rke2Config) -> Iterable[Finding]:
    if config.cluster_cidr.overlaps(config.service_cidr):
        yield finding(
            ("service-cidr",),
            f"meets cluster-cidr, which is {config.cluster_cidr}",
            show(str(config.service_cidr)),
            "write ranges that have no address in common; they never change",
        )


@rule(32, "rke2.machine-in-cluster-network")
def machines_are_outside_of_the_clusters_networks(config: Rke2Config) -> Iterable[Finding]:
    ranges = {"cluster-cidr": config.cluster_cidr, "service-cidr": config.service_cidr}
    return rke2_checks.outside(_stated(config), ranges, ())


def _stated(config: Rke2Config) -> Iterator[tuple[Path, str | None]]:
    machines = config.hosts.machines if isinstance(config.hosts, ExistingHosts) else ()
    for number, machine in enumerate(machines):
        yield ("hosts", "machines", number, "address"), machine.address
    yield ("registration-address",), config.registration_address


@rule(32, "rke2.cis-without-policies")
def the_cni_closes_what_cis_closes(config: Rke2Config) -> Iterable[Finding]:
    if config.cis_profile and isinstance(config.cni, Flannel):
        yield finding(
            ("cni", "kind"),
            "enforces no network policies, and cis-profile relies on them",
            '"flannel"',
            "write canal, calico or cilium; it never changes",
        )


@rule(32, "rke2.cni-without-policies", level=Level.WARN)
def flannel_closes_nothing(config: Rke2Config) -> Iterable[Finding]:
    if isinstance(config.cni, Flannel):
        yield finding(
            ("cni", "kind"),
            "ignores network policies: every pod reaches every other",
            '"flannel"',
            "write canal for the same network with policies; it never changes",
        )


@rule(32, "rke2.google-cloud-refuses")
def google_cloud_can_make_the_machines(config: Rke2Config) -> Iterable[Finding]:
    if isinstance(config.hosts, GcpHosts):
        yield from gcp_rules.check(
            config.hosts,
            cluster=config.name,
            ranges={"cluster-cidr": config.cluster_cidr, "service-cidr": config.service_cidr},
        )


@rule(32, "rke2.mtu-above-network", level=Level.WARN)
def packets_fit_into_googles_network(config: Rke2Config) -> Iterable[Finding]:
    if not isinstance(config.hosts, GcpHosts) or config.hosts.network.source != "own":
        return
    overhead = 80 if isinstance(config.cni, Canal) and config.cni.wireguard else 50
    most = config.hosts.network.mtu - overhead
    stated = getattr(config.cni, "mtu", None)
    if stated is not None and stated > most:
        yield finding(
            ("cni", "mtu"),
            f"leaves no room for the tunnel in hosts.network.mtu, which is {config.hosts.network.mtu}",
            show(stated),
            f"write {most} or less, or remove it",
        )
