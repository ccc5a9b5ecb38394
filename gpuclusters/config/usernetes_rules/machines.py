"""Rows 45, 47, 50 to 52: every node is one machine with its GPUs, and somebody prepares it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpuclusters.compat import gpu_products
from gpuclusters.config import gcp_rules, rke2_checks
from gpuclusters.config.fault import NOTHING, show
from gpuclusters.config.gcp import GcpHosts, public_system
from gpuclusters.config.gcp_rules import either
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.rules.rule import Wrong, listed_twice, rule
from gpuclusters.config.usernetes import ContainerEngine, PackagedDriver, UsernetesConfig
from gpuclusters.config.usernetes_plan import schedulable, training_pods, uses_sudo
from gpuclusters.config.usernetes_rules.network import ranges
from gpuclusters.core.finding import Finding, Level, Path

MOST_MEASURED = 32
"""Nodes of the largest cluster with Usernetes and V100s that anybody wrote about (size-32, 2025)."""


def named(config: UsernetesConfig) -> Iterator[tuple[Path, str]]:
    """Every place where a node names its machine."""
    yield ("control-plane", "host"), config.control_plane.host
    for number, worker in enumerate(config.workers):
        yield ("workers", number, "host"), worker.host


@rule(45, "usernetes.machine-twice", each=["workers"])
def a_machine_is_one_node(config: UsernetesConfig) -> Iterable[Wrong]:
    seen: dict[str, Path] = {}
    for path, name in named(config):
        if name in seen:
            before = seen[name]
            place = "the control plane" if before[0] == "control-plane" else f"workers[{before[1]}]"
            yield Wrong(path, f"is {place} already", "name each machine once", show(name))
        seen.setdefault(name, path)


@rule(45, "usernetes.machine-unknown", each=["workers"])
def nodes_are_machines_of_hosts(config: UsernetesConfig) -> Iterable[Wrong]:
    return rke2_checks.unknown_machines(named(config), config.hosts)


@rule(45, "usernetes.machine-unused", level=Level.WARN)
def every_machine_is_a_node(config: UsernetesConfig) -> Iterable[Wrong]:
    used = {name for _, name in named(config)}
    for number, name in enumerate(rke2_checks.known_machines(config.hosts) or ()):
        if name not in used:
            listed = isinstance(config.hosts, ExistingHosts)
            yield Wrong(
                ("hosts", "machines", number) if listed else ("hosts", "groups"),
                "is no node"
                if listed
                else f"have {name}, which is no node and costs as much as one",
                "write it under workers with a number, or remove it",
                show(name),
            )


@rule(45, "usernetes.host-twice")
def existing_machines_are_listed_once(config: UsernetesConfig) -> Iterable[Wrong | Finding]:
    return listed_twice(config.hosts)


@rule(45, "usernetes.group-role", each=["workers"])
def groups_say_what_their_machines_are(config: UsernetesConfig) -> Iterable[Wrong]:
    if not isinstance(config.hosts, GcpHosts):
        return
    first = config.control_plane.host
    for path, name in named(config):
        if name not in config.hosts.machines:
            continue
        group = config.hosts.group_of(name)
        role = "controller" if name == first else "worker"
        if group.role != role:
            what = "the control plane" if role == "controller" else "a worker"
            yield Wrong(
                path,
                f"is {what}, and its group {group.name} says role: {group.role}",
                f"move it to a group with role: {role}",
                show(name),
            )


@rule(45, "usernetes.many-nodes", level=Level.WARN)
def so_many_nodes_were_seen(config: UsernetesConfig) -> Iterable[Wrong]:
    nodes = len(config.workers) + 1
    if nodes > MOST_MEASURED:
        yield Wrong(
            "workers",
            f"make a cluster of {nodes} nodes, and {MOST_MEASURED} is the most that anybody wrote about",
            "expect joins that take several attempts, or make two clusters",
            f"a list of {len(config.workers)}",
        )


@rule(47, "usernetes.machine-gpus", each=["workers"])
def nodes_have_the_gpus_of_their_machines(config: UsernetesConfig) -> Iterable[Wrong]:
    if not isinstance(config.hosts, GcpHosts):
        return
    names = {name for _, name in named(config)}
    for number, group in enumerate(config.hosts.groups):
        if names.isdisjoint(group.machines):
            continue
        made = None if group.gpu is None else (group.gpu.product, group.gpu.count)
        if made != (config.gpus.product, config.gpus.count):
            yield Wrong(
                ("hosts", "groups", number, "gpu"),
                f"is not what gpus says, {config.gpus.count} × {config.gpus.product}: all nodes are alike,"
                " the control plane too",
                f"write {{product: {config.gpus.product}, count: {config.gpus.count}}}, or change gpus",
                NOTHING if made is None else f"{made[1]} × {made[0]}",
            )


@rule(47, "usernetes.processor")
def gpus_are_in_machines_that_are_installed_for(config: UsernetesConfig) -> Iterable[Wrong]:
    if gpu_products.product(config.gpus.product).cpu != "amd64":
        yield Wrong(
            "gpus.product",
            "is on an arm64 machine, and this version prepares amd64",
            "write the GPUs of an amd64 machine",
        )


@rule(47, "usernetes.no-node-for-pods")
def some_node_takes_pods(config: UsernetesConfig) -> Iterable[Wrong]:
    if not schedulable(config):
        yield Wrong(
            "schedule-on-control-plane",
            "is false, and there are no workers: every pod would stay Pending",
            "write true, or add workers",
        )


@rule(47, "usernetes.control-plane-gpus-unused", level=Level.WARN)
def the_gpus_of_the_control_plane_are_used(config: UsernetesConfig) -> Iterable[Wrong]:
    if not config.schedule_on_control_plane and config.workers:
        yield Wrong(
            "schedule-on-control-plane",
            "leaves the GPUs of the control plane to nobody",
            "write true; a training counts it as a node then",
        )


@rule(47, "usernetes.training-gpus")
def a_training_finds_its_gpus(config: UsernetesConfig) -> Iterable[Wrong]:
    stated = config.proof.training
    if stated is None:
        return
    count = config.gpus.count
    each = stated.gpus_per_pod or count
    if each > count:
        yield Wrong(
            "proof.training.gpus-per-pod",
            f"is more than the {count} of a node: the pods would stay Pending",
            f"write {count} or less, or nothing for all of a node",
            show(each),
        )
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
        yield Wrong(
            "proof.training.pods",
            "is 1: nothing crosses from node to node, and that is where Usernetes is slow",
            "add a worker, or take the result for what one node does",
        )


_OS_LOGIN = re.compile(r"sa_[0-9]+|ext_.+|[a-z0-9_]+_[a-z0-9]+_(com|org|net|edu|io|dev|gov)")
"""Names that OS Login makes of addresses: jane_doe_example_com, ext_jane_gmail_com, sa_1234567890."""


@rule(50, "usernetes.os-login-account", level=Level.WARN)
def the_account_is_none_of_os_login(config: UsernetesConfig) -> Iterable[Wrong]:
    if _OS_LOGIN.fullmatch(config.account):
        yield Wrong(
            "account",
            "looks like an account of OS Login, which has a very high id and no range of subordinate ids",
            "write an account of the machine itself, or give this one ranges in /etc/subuid and /etc/subgid",
        )


@rule(50, "usernetes.driver-without-root")
def an_administrator_installs_the_driver(config: UsernetesConfig) -> Iterable[Wrong]:
    if not uses_sudo(config) and isinstance(config.driver, PackagedDriver):
        yield Wrong(
            "driver.source",
            "is host, and preparation.by is administrator: a driver cannot be installed without root",
            "write driver: {source: installed}; the check says what is missing and the command for it",
        )


@rule(50, "usernetes.account-without-sudo")
def without_sudo_the_account_logs_in_itself(config: UsernetesConfig) -> Iterable[Wrong]:
    if uses_sudo(config) or not isinstance(config.hosts, ExistingHosts | GcpHosts):
        return
    if config.hosts.user != config.account:
        yield Wrong(
            "hosts.user",
            f"is not {config.account}, and preparation.by is administrator: without root nobody becomes"
            " another account",
            f"write {config.account} there, or the account that logs in as account",
        )


@rule(50, "usernetes.machines-not-prepared")
def new_machines_are_prepared_by_somebody(config: UsernetesConfig) -> Iterable[Wrong]:
    if uses_sudo(config) or not isinstance(config.hosts, GcpHosts):
        return
    if public_system(config.hosts.image) is not None:
        yield Wrong(
            "preparation.by",
            "is administrator, and the machines are made from a public image, which nobody has prepared",
            "write sudo, or an image of your own that is prepared",
        )


@rule(51, "usernetes.container-engine")
def only_rootless_docker_is_built(config: UsernetesConfig) -> Iterable[Wrong]:
    why = {
        ContainerEngine.PODMAN: "is not built: with its own network, pasta, flannel never reaches 10.96.0.1,"
        " and nobody has a GPU recipe for it",
        ContainerEngine.NERDCTL: "is not built: its rootless containerd and rootless Docker exclude each"
        " other on a host, and nobody has a GPU recipe for it",
    }
    if config.container_engine in why:
        yield Wrong("container-engine", why[config.container_engine], "write docker, or remove it")


@rule(52, "usernetes.google-cloud-refuses")
def google_cloud_can_make_the_nodes(config: UsernetesConfig) -> Iterable[Wrong | Finding]:
    if isinstance(config.hosts, GcpHosts):
        yield from gcp_rules.check(config.hosts, cluster=config.name, ranges=ranges(config))


@rule(52, "usernetes.image-system")
def images_are_of_ubuntu(config: UsernetesConfig) -> Iterable[Wrong]:
    if not isinstance(config.hosts, GcpHosts):
        return
    system = config.hosts.image.system
    if system is not None and system not in gcp_rules.SYSTEMS:
        yield Wrong(
            "hosts.image.system",
            "is not one that hosts of Usernetes are prepared on",
            f"write {either(gcp_rules.SYSTEMS)}",
        )
