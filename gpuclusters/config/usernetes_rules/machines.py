"""Rows 45, 47, 50 to 52: every node is one machine with its GPUs, and somebody prepares it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpuclusters.compat import gpu_products
from gpuclusters.config import gcp_rules, rke2_checks
from gpuclusters.config.fault import NOTHING, show
from gpuclusters.config.gcp import GcpGroup, GcpHosts, either, public_system
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.rules.rule import Wrong, listed_twice, repeats, rule
from gpuclusters.config.usernetes import (
    ContainerEngine,
    PackagedDriver,
    UsernetesConfig,
    UsernetesHosts,
)
from gpuclusters.config.usernetes_plan import schedulable, training_pods, uses_sudo
from gpuclusters.config.usernetes_rules.network import node_name, ranges, stated_for_nodes
from gpuclusters.core.finding import Finding, Level, Path

MOST_MEASURED = 32
"""Nodes of the largest cluster with Usernetes and V100s that anybody wrote about (size-32, 2025)."""


def _named(config: UsernetesConfig) -> list[tuple[Path, str]]:
    return [(path, node.host) for path, node in stated_for_nodes(config, "host")]


@rule(45, "usernetes.machine-twice", each=["workers"])
def a_machine_is_one_node(config: UsernetesConfig) -> Iterable[Wrong]:
    named = _named(config)
    for again, first in repeats([name for _, name in named]):
        yield Wrong(named[again][0], f"is {node_name(first)} already")


@rule(45, "usernetes.machine-unknown", each=["workers"])
def nodes_are_machines_of_hosts(config: UsernetesConfig) -> Iterable[Wrong]:
    return rke2_checks.unknown_machines(_named(config), config.hosts)


@rule(45, "usernetes.machine-unused", level=Level.WARN)
def every_machine_is_a_node(config: UsernetesConfig) -> Iterable[Wrong]:
    listed = isinstance(config.hosts, ExistingHosts)
    for path, name in rke2_checks.unused_machines(_named(config), config.hosts):
        wrong = (
            "is no node" if listed else f"have {name}, which is no node and costs as much as one"
        )
        yield Wrong(path, wrong, got=show(name))


@rule(45, "usernetes.host-twice")
def existing_machines_are_listed_once(config: UsernetesConfig) -> Iterable[Finding]:
    return listed_twice(config.hosts)


def _groups(config: UsernetesConfig) -> Iterator[tuple[Path, str, GcpGroup]]:
    """Nodes on Google Cloud, with the group that makes the machine of each."""
    hosts = config.hosts
    for path, name in _named(config):
        if isinstance(hosts, GcpHosts) and (group := hosts.group_of(name)) is not None:
            yield path, name, group


@rule(45, "usernetes.group-role", each=["workers"])
def groups_say_what_their_machines_are(config: UsernetesConfig) -> Iterable[Wrong]:
    roles = {"controller": "the control plane", "worker": "a worker"}
    for path, name, group in _groups(config):
        role = "controller" if name == config.control_plane.host else "worker"
        if group.role != role:
            wrong = f"is {roles[role]}, and its group {group.name} says role: {group.role}"
            yield Wrong(path, wrong, f"move it to a group with role: {role}")


@rule(45, "usernetes.many-nodes", level=Level.WARN)
def so_many_nodes_were_seen(config: UsernetesConfig) -> Iterable[Wrong]:
    nodes = len(config.workers) + 1
    if nodes > MOST_MEASURED:
        wrong = f"make a cluster of {nodes} nodes, and {MOST_MEASURED} is the most that anybody wrote about"
        yield Wrong("workers", wrong, got=f"a list of {len(config.workers)}")


@rule(47, "usernetes.machine-gpus", each=["workers"])
def nodes_have_the_gpus_of_their_machines(config: UsernetesConfig) -> Iterable[Wrong]:
    product, count = config.gpus.product, config.gpus.count
    names = {name for _, name in _named(config)}
    groups = config.hosts.groups if isinstance(config.hosts, GcpHosts) else ()
    for number, group in enumerate(groups):
        made = None if group.gpu is None else (group.gpu.product, group.gpu.count)
        if made != (product, count) and not names.isdisjoint(group.machines):
            yield Wrong(
                ("hosts", "groups", number, "gpu"),
                f"is not what gpus says, {count} × {product}: all nodes are alike, the control plane too",
                f"write {{product: {product}, count: {count}}}, or change gpus",
                NOTHING if made is None else f"{made[1]} × {made[0]}",
            )


@rule(47, "usernetes.processor")
def gpus_are_in_machines_that_are_installed_for(config: UsernetesConfig) -> Iterable[Wrong]:
    if gpu_products.product(config.gpus.product).cpu != "amd64":
        wrong = "is on an arm64 machine, and this version prepares amd64"
        yield Wrong("gpus.product", wrong)


@rule(47, "usernetes.no-node-for-pods")
def some_node_takes_pods(config: UsernetesConfig) -> Iterable[Wrong]:
    if not schedulable(config):
        wrong = "is false, and there are no workers: every pod would stay Pending"
        yield Wrong("schedule-on-control-plane", wrong)


@rule(47, "usernetes.control-plane-gpus-unused", level=Level.WARN)
def the_gpus_of_the_control_plane_are_used(config: UsernetesConfig) -> Iterable[Wrong]:
    if not config.schedule_on_control_plane and config.workers:
        yield Wrong("schedule-on-control-plane", "leaves the GPUs of the control plane to nobody")


@rule(47, "usernetes.training-gpus")
def a_training_finds_its_gpus(config: UsernetesConfig) -> Iterable[Wrong]:
    stated, count = config.proof.training, config.gpus.count
    if stated is None:
        return
    each = stated.gpus_per_pod or count
    if each > count:
        wrong = f"is more than the {count} of a node: the pods would stay Pending"
        remedy = f"write {count} or less, or nothing for all of a node"
        yield Wrong("proof.training.gpus-per-pod", wrong, remedy)
        return
    nodes = len(schedulable(config))
    room = nodes * (count // each)
    if nodes and training_pods(config, stated) > room:
        yield Wrong(
            "proof.training.pods",
            f"is more than fit on {nodes} nodes that take pods, with {count} GPUs each and {each} for a pod:"
            f" {room}",
            f"write {room} or less, or nothing for one on every node",
        )


@rule(47, "usernetes.training-single-node", level=Level.WARN)
def a_training_crosses_nodes(config: UsernetesConfig) -> Iterable[Wrong]:
    stated = config.proof.training
    if stated is not None and schedulable(config) and training_pods(config, stated) == 1:
        wrong = "is 1: nothing crosses from node to node, and that is where Usernetes is slow"
        yield Wrong("proof.training.pods", wrong)


_OS_LOGIN = re.compile(r"sa_[0-9]+|ext_.+|[a-z0-9_]+_[a-z0-9]+_(com|org|net|edu|io|dev|gov)")
"""Names that OS Login makes of addresses: jane_doe_example_com, ext_jane_gmail_com, sa_1234567890."""


@rule(50, "usernetes.os-login-account", level=Level.WARN)
def the_account_is_none_of_os_login(config: UsernetesConfig) -> Iterable[Wrong]:
    if _OS_LOGIN.fullmatch(config.account):
        wrong = "looks like an account of OS Login, which has a very high id and no range of subordinate ids"
        yield Wrong("account", wrong)


@rule(50, "usernetes.driver-without-root", "driver", kind=PackagedDriver)
def an_administrator_installs_the_driver(
    config: UsernetesConfig, _driver: PackagedDriver
) -> Iterable[Wrong]:
    if not uses_sudo(config):
        wrong = "is host, and preparation.by is administrator: a driver cannot be installed without root"
        yield Wrong("source", wrong)


@rule(50, "usernetes.account-without-sudo", "hosts")
def without_sudo_the_account_logs_in_itself(
    config: UsernetesConfig, hosts: UsernetesHosts
) -> Iterable[Wrong]:
    known = isinstance(hosts, ExistingHosts | GcpHosts)
    if known and not uses_sudo(config) and hosts.user != config.account:
        yield Wrong(
            "user",
            f"is not {config.account}, and preparation.by is administrator: without root nobody becomes"
            " another account",
            f"write {config.account} there, or the account that logs in as account",
        )


@rule(50, "usernetes.machines-not-prepared")
def new_machines_are_prepared_by_somebody(config: UsernetesConfig) -> Iterable[Wrong]:
    made = isinstance(config.hosts, GcpHosts) and not uses_sudo(config)
    if made and public_system(config.hosts.image) is not None:
        wrong = "is administrator, and the machines are made from a public image, which nobody has prepared"
        yield Wrong("preparation.by", wrong)


@rule(51, "usernetes.container-engine")
def only_rootless_docker_is_built(config: UsernetesConfig) -> Iterable[Wrong]:
    why = {
        ContainerEngine.PODMAN: "with its own network, pasta, flannel never reaches 10.96.0.1,",
        ContainerEngine.NERDCTL: "its rootless containerd and rootless Docker exclude each other on a host,",
    }.get(config.container_engine)
    if why is not None:
        wrong = f"is not built: {why} and nobody has a GPU recipe for it"
        yield Wrong("container-engine", wrong)


@rule(52, "usernetes.google-cloud-refuses", "hosts", kind=GcpHosts)
def google_cloud_can_make_the_nodes(config: UsernetesConfig, hosts: GcpHosts) -> Iterable[Wrong]:
    return gcp_rules.check(hosts, cluster=config.name, ranges=ranges(config))


@rule(52, "usernetes.image-system", "hosts", kind=GcpHosts)
def images_are_of_ubuntu(_config: UsernetesConfig, hosts: GcpHosts) -> Iterable[Wrong]:
    if hosts.image.system not in (None, *gcp_rules.SYSTEMS):
        wrong = "is not one that hosts of Usernetes are prepared on"
        yield Wrong("image.system", wrong, f"write {either(gcp_rules.SYSTEMS)}")
