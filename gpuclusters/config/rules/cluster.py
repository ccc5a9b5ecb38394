"""Row 0: what holds for every cluster, whatever it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpuclusters.config.adopted import strangers
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import finding, show, show_values
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.kubernetes import LabKubernetes, Rke2Kubernetes
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding


def repeats(names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Positions of names that were there before, with the position of the first."""
    first: dict[str, int] = {}
    for position, name in enumerate(names):
        if name in first:
            yield position, first[name]
        else:
            first[name] = position


@rule(0, "caas.adopted-unknown", each=["nodes", "tenants"])
def adopted_things_are_in_the_cluster(config: CaasConfig) -> Iterable[Finding]:
    machines = {node.name for node in config.nodes}
    if isinstance(config.kubernetes, Rke2Kubernetes):
        machines |= {server.name for server in config.kubernetes.servers}
    yield from strangers(("adopt", "machines"), config.adopt.machines, machines)
    tenants = {tenant.name for tenant in config.tenants}
    yield from strangers(("adopt", "tenants"), config.adopt.tenants, tenants)


@rule(0, "caas.no-nodes")
def has_nodes(config: CaasConfig) -> Iterable[Finding]:
    if not config.nodes:
        yield finding(("nodes",), "has no node", "[]", "write at least one: - name: hgx-01")


@rule(0, "caas.node-twice", each=["nodes"])
def node_names_differ(config: CaasConfig) -> Iterable[Finding]:
    for position, first in repeats([node.name for node in config.nodes]):
        name = config.nodes[position].name
        yield finding(
            ("nodes", position, "name"),
            f"is also the name of nodes[{first}]",
            show(name),
            "give every node a name of its own",
        )


@rule(0, "caas.machine-twice")
def machine_names_differ(config: CaasConfig) -> Iterable[Finding]:
    if not isinstance(config.hosts, ExistingHosts):
        return
    machines = config.hosts.machines
    for position, first in repeats([machine.name for machine in machines]):
        yield finding(
            ("hosts", "machines", position, "name"),
            f"is also the name of hosts.machines[{first}]",
            show(machines[position].name),
            "give every machine a name of its own",
        )
    for position, first in repeats([f"{one.address}:{one.port}" for one in machines]):
        yield finding(
            ("hosts", "machines", position, "address"),
            f"is also the address of hosts.machines[{first}], with the same port",
            show(machines[position].address),
            "write the address of this machine",
        )


@rule(0, "caas.node-without-machine", each=["nodes"])
def nodes_have_machines(config: CaasConfig) -> Iterable[Finding]:
    if not isinstance(config.hosts, ExistingHosts):
        return
    known = [machine.name for machine in config.hosts.machines]
    for position, node in enumerate(config.nodes):
        if node.name not in known:
            yield finding(
                ("nodes", position, "name"),
                "is not the name of a machine under hosts.machines",
                show(node.name),
                f"write one of {show_values(known)}" if known else "add the machine there",
            )


@rule(0, "caas.machine-unused")
def machines_have_nodes(config: CaasConfig) -> Iterable[Finding]:
    if not isinstance(config.hosts, ExistingHosts):
        return
    used = {node.name for node in config.nodes}
    if isinstance(config.kubernetes, Rke2Kubernetes):
        used |= {server.name for server in config.kubernetes.servers}
    for position, machine in enumerate(config.hosts.machines):
        if machine.name not in used:
            yield finding(
                ("hosts", "machines", position, "name"),
                "is a machine that no node uses",
                show(machine.name),
                "add a node of this name to nodes, or remove the machine",
            )


@rule(0, "caas.lab-mixed")
def lab_is_one_thing(config: CaasConfig) -> Iterable[Finding]:
    lab_hosts = isinstance(config.hosts, LabHosts)
    if isinstance(config.kubernetes, Rke2Kubernetes):
        return  # made on whatever machines there are
    if lab_hosts != isinstance(config.kubernetes, LabKubernetes):
        other = "lab" if lab_hosts else "existing"
        yield finding(
            ("kubernetes", "source"),
            f"does not fit hosts.source, which is {other}",
            show(config.kubernetes.source),
            f"write {other}, or change hosts.source: the machines are nodes of this cluster",
        )
