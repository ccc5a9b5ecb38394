"""Rows 0 and 24: what holds for every cluster, whatever it runs, and for one that is made with RKE2."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from gpuclusters.compat import rke2_matrix
from gpuclusters.compat.rke2_matrix import DropIns
from gpuclusters.config import rke2_checks
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import show_values
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.kubernetes import Distribution, LabKubernetes, Rke2Kubernetes
from gpuclusters.config.nodes import Node
from gpuclusters.config.plan import machine_addresses
from gpuclusters.config.rules.rule import Wrong, listed_twice, repeats, rule, unexpected_names
from gpuclusters.core.finding import Finding, Level, Path
from gpuclusters.host.drop_ins import ContainerdSchema
from gpuclusters.rke2 import releases
from gpuclusters.rke2.host_config import PolicyEnforcement

_rke2 = partial(rule, 24, of="kubernetes", kind=Rke2Kubernetes)


@rule(0, "caas.adopted-unknown", each=["nodes", "tenants"])
def adopted_things_are_in_the_cluster(config: CaasConfig) -> Iterable[Finding]:
    yield from unexpected_names(("adopt", "machines"), config.adopt.machines, _machines(config))
    tenants = {tenant.name for tenant in config.tenants}
    yield from unexpected_names(("adopt", "tenants"), config.adopt.tenants, tenants)


def _machines(config: CaasConfig) -> set[str]:
    """Names of nodes and servers."""
    cluster = config.kubernetes
    servers = cluster.servers if isinstance(cluster, Rke2Kubernetes) else ()
    return {node.name for node in config.nodes} | {server.name for server in servers}


@rule(0, "caas.node-twice", each=["nodes"])
def node_names_differ(config: CaasConfig) -> Iterable[Wrong]:
    for position, first in repeats([node.name for node in config.nodes]):
        yield Wrong(
            ("nodes", position, "name"),
            f"is also the name of nodes[{first}]",
            "give every node a name of its own",
        )


@rule(0, "caas.machine-twice")
def machine_names_differ(config: CaasConfig) -> Iterable[Finding]:
    return listed_twice(config.hosts)


@rule(0, "caas.node-without-machine", "nodes")
def nodes_have_machines(config: CaasConfig, node: Node) -> Iterable[Wrong]:
    if not isinstance(config.hosts, ExistingHosts):
        return
    known = [machine.name for machine in config.hosts.machines]
    if node.name not in known:
        yield Wrong(
            "name",
            "is not the name of a machine under hosts.machines",
            f"write one of {show_values(known)}" if known else "add the machine there",
        )


@rule(0, "caas.machine-unused", "hosts", kind=ExistingHosts)
def machines_have_nodes(config: CaasConfig, hosts: ExistingHosts) -> Iterable[Wrong]:
    used = _machines(config)
    for position, machine in enumerate(hosts.machines):
        if machine.name not in used:
            yield Wrong(
                ("machines", position, "name"),
                "is a machine that no node uses",
                "add a node of this name to nodes, or remove the machine",
            )


@rule(0, "caas.lab-mixed")
def lab_is_one_thing(config: CaasConfig) -> Iterable[Wrong]:
    lab_hosts = isinstance(config.hosts, LabHosts)
    if isinstance(config.kubernetes, Rke2Kubernetes):
        return  # made on whatever machines there are
    if lab_hosts != isinstance(config.kubernetes, LabKubernetes):
        other = "lab" if lab_hosts else "existing"
        yield Wrong(
            "kubernetes.source",
            f"does not fit hosts.source, which is {other}",
            f"write {other}, or change hosts.source: the machines are nodes of this cluster",
        )


@_rke2("rke2.network-too-small")
def networks_have_room(config: CaasConfig, cluster: Rke2Kubernetes) -> Iterable[Wrong]:
    ranges = {"pod-cidr": cluster.pod_cidr, "service-cidr": cluster.service_cidr}
    return rke2_checks.room(ranges, len(_machines(config)))


@_rke2("rke2.machine-in-cluster-network")
def machines_are_outside_of_the_clusters_networks(
    config: CaasConfig, cluster: Rke2Kubernetes
) -> Iterable[Finding]:
    ranges = {
        "kubernetes.pod-cidr": cluster.pod_cidr,
        "kubernetes.service-cidr": cluster.service_cidr,
    }
    return rke2_checks.outside(machine_addresses(config), ranges)


@_rke2("caas.drop-ins-not-imported")
def containerd_imports_its_drop_ins(
    _config: CaasConfig, cluster: Rke2Kubernetes
) -> Iterable[Wrong]:
    if rke2_matrix.drop_ins(releases.parse_version(cluster.version)) is DropIns.NO:
        table = rke2_matrix.matrix().rke2.drop_ins
        likely = ", ".join(table[DropIns.LIKELY][minor] for minor in sorted(table[DropIns.LIKELY]))
        yield Wrong(
            "version",
            "writes a containerd configuration that imports no drop-ins: those of Kata and of this program "
            "would be ignored",
            f"write v1.{min(table[DropIns.CONFIRMED])} or newer; not confirmed: from {likely} on",
        )
    if cluster.containerd.config_version not in (None, ContainerdSchema.V3):
        yield Wrong(
            "containerd.config-version",
            "is not that of RKE2's containerd: a drop-in with it would be ignored silently",
            "remove it, or write 3",
        )
    if cluster.containerd.is_old:
        yield Wrong("containerd.version", "is older than that of any such RKE2", "remove it")
    if cluster.distribution is not Distribution.RKE2:
        yield Wrong("distribution", "is another one than kubernetes.source", "remove it")


@_rke2("caas.drop-ins-unconfirmed", level=Level.WARN)
def drop_ins_are_confirmed(_config: CaasConfig, cluster: Rke2Kubernetes) -> Iterable[Wrong]:
    version = releases.parse_version(cluster.version)
    known = version.minor <= rke2_matrix.newest_minor()
    if known and rke2_matrix.drop_ins(version) is DropIns.LIKELY:
        first = min(rke2_matrix.matrix().rke2.drop_ins[DropIns.CONFIRMED])
        yield Wrong(
            "version",
            "likely imports containerd's drop-ins, which was not confirmed; `up` ends on the first machine "
            "where it does not",
            f"write v1.{first} or newer, or go on",
        )


@_rke2("rke2.default-runtime")
def no_default_runtime(_config: CaasConfig, cluster: Rke2Kubernetes) -> Iterable[Wrong]:
    return rke2_checks.no_default_runtime(cluster)


@_rke2("rke2.environment-variable")
def variables_are_those_of_a_proxy(_config: CaasConfig, cluster: Rke2Kubernetes) -> Iterable[Wrong]:
    return rke2_checks.variables(cluster)


@_rke2("caas.rke2-release-unknown", level=Level.WARN)
def the_release_is_known(_config: CaasConfig, cluster: Rke2Kubernetes) -> Iterable[Wrong]:
    newest = rke2_matrix.newest_minor()
    if releases.parse_version(cluster.version).minor > newest:
        yield Wrong(
            "version",
            f"is newer than v1.{newest}, the last one that was read about here",
            "read its release notes for changes of Cilium, containerd and ingress before you apply it",
        )


@_rke2("caas.policy-closes-system", level=Level.WARN)
def always_closes_the_system_too(_config: CaasConfig, cluster: Rke2Kubernetes) -> Iterable[Wrong]:
    if cluster.cilium.policy_enforcement is PolicyEnforcement.ALWAYS:
        yield Wrong(
            "cilium.policy-enforcement",
            "closes system pods too, CoreDNS among them, until policies open them",
            "write default: tenants are closed by the policy of all tenants either way",
        )


@_rke2("rke2.server-count")
def servers_can_hold_a_majority(_config: CaasConfig, cluster: Rke2Kubernetes) -> Iterable[Wrong]:
    return rke2_checks.majority(len(cluster.servers))


@_rke2("caas.server-machine")
def servers_are_machines_of_their_own(
    config: CaasConfig, cluster: Rke2Kubernetes
) -> Iterable[Wrong]:
    machines = config.hosts.machines if isinstance(config.hosts, ExistingHosts) else ()
    listed = {machine.name: f"{machine.address}:{machine.port}" for machine in machines}
    nodes = {node.name for node in config.nodes}
    names: dict[str, int] = {}
    taken = {place: f"hosts.machines, as {name}" for name, place in listed.items()}
    for position, server in enumerate(cluster.servers):
        path: Path = ("servers", position)
        if server.name in names:
            yield Wrong(
                (*path, "name"),
                f"is also the name of servers[{names[server.name]}]",
                "give every server a name of its own: etcd and the cluster know it by its name",
            )
        names.setdefault(server.name, position)
        if server.address is None:
            if server.host_key is not None:
                yield Wrong(
                    (*path, "host-key"),
                    "is stated without an address",
                    "write the address too, or leave both to the machine of this name",
                )
            if isinstance(config.hosts, ExistingHosts) and server.name not in listed:
                yield Wrong(
                    (*path, "address"),
                    "is missing, and no machine of this name is under hosts.machines",
                    "write address and host-key of the server",
                )
            continue
        if server.host_key is None:
            yield Wrong(
                (*path, "host-key"),
                "is missing",
                "write what `ssh-keyscan -t ed25519 ADDRESS` prints: a machine that cannot prove who it is "
                "gets no command",
            )
        if server.name in nodes or server.name in listed:
            yield Wrong(
                (*path, "name"),
                "is the name of another machine of this configuration, which has an address already",
                "give the server a name of its own, or leave its address out if it is that machine",
            )
        place = f"{server.address}:{server.port}"
        if place in taken:
            yield Wrong(
                (*path, "address"),
                f"is also that of {taken[place]}",
                "write the address of this server",
            )
        taken.setdefault(place, f"servers[{position}]")


@_rke2("rke2.registration-address")
def servers_have_one_address(config: CaasConfig, cluster: Rke2Kubernetes) -> Iterable[Wrong]:
    return rke2_checks.one_address(
        cluster.registration_address,
        {server.name: server.address for server in cluster.servers},
        simulated=not isinstance(config.hosts, ExistingHosts),
    )


@_rke2("rke2.single-server", level=Level.WARN)
def one_server_is_no_spare(config: CaasConfig, cluster: Rke2Kubernetes) -> Iterable[Wrong]:
    if isinstance(config.hosts, ExistingHosts):
        yield from rke2_checks.no_spare(len(cluster.servers))
