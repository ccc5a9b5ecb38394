"""Row 47: the GPUs are there, and what asks for them finds a node."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.compat import gpu_products
from gpuclusters.config.fault import NOTHING, finding, show
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.rules.rule import rule
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.config.usernetes_plan import schedulable, training_pods
from gpuclusters.config.usernetes_rules.machines import named
from gpuclusters.core.finding import Finding, Level


@rule(47, "usernetes.machine-gpus", each=["workers"])
def nodes_have_the_gpus_of_their_machines(config: UsernetesConfig) -> Iterable[Finding]:
    if not isinstance(config.hosts, GcpHosts):
        return
    names = {name for _, name in named(config)}
    for number, group in enumerate(config.hosts.groups):
        if names.isdisjoint(group.machines):
            continue
        made = None if group.gpu is None else (group.gpu.product, group.gpu.count)
        if made != (config.gpus.product, config.gpus.count):
            yield finding(
                ("hosts", "groups", number, "gpu"),
                f"is not what gpus says, {config.gpus.count} × {config.gpus.product}: all nodes are alike,"
                " the control plane too",
                NOTHING if made is None else f"{made[1]} × {made[0]}",
                f"write {{product: {config.gpus.product}, count: {config.gpus.count}}}, or change gpus",
            )


@rule(47, "usernetes.processor")
def gpus_are_in_machines_that_are_installed_for(config: UsernetesConfig) -> Iterable[Finding]:
    if gpu_products.product(config.gpus.product).cpu != "amd64":
        yield finding(
            ("gpus", "product"),
            "is on an arm64 machine, and this version prepares amd64",
            show(config.gpus.product),
            "write the GPUs of an amd64 machine",
        )


@rule(47, "usernetes.no-node-for-pods")
def some_node_takes_pods(config: UsernetesConfig) -> Iterable[Finding]:
    if not schedulable(config):
        yield finding(
            ("schedule-on-control-plane",),
            "is false, and there are no workers: every pod would stay Pending",
            "false",
            "write true, or add workers",
        )


@rule(47, "usernetes.control-plane-gpus-unused", level=Level.WARN)
def the_gpus_of_the_control_plane_are_used(config: UsernetesConfig) -> Iterable[Finding]:
    if not config.schedule_on_control_plane and config.workers:
        yield finding(
            ("schedule-on-control-plane",),
            "leaves the GPUs of the control plane to nobody",
            "false",
            "write true; a training counts it as a node then",
        )


@rule(47, "usernetes.training-gpus")
def a_training_finds_its_gpus(config: UsernetesConfig) -> Iterable[Finding]:
    stated = config.proof.training
    if stated is None:
        return
    count = config.gpus.count
    each = stated.gpus_per_pod or count
    if each > count:
        yield finding(
            ("proof", "training", "gpus-per-pod"),
            f"is more than the {count} of a node: the pods would stay Pending",
            show(each),
            f"write {count} or less, or nothing for all of a node",
        )
        return
    nodes = len(schedulable(config))
    room = nodes * (count // each)
    if nodes and training_pods(config, stated) > room:
        yield finding(
            ("proof", "training", "pods"),
            f"is more than fit on {nodes} nodes that take pods, with {count} GPUs each and {each} for a pod:"
            f" {room}",
            show(stated.pods),
            f"write {room} or less, or nothing for one on every node",
        )


@rule(47, "usernetes.training-single-node", level=Level.WARN)
def a_training_crosses_nodes(config: UsernetesConfig) -> Iterable[Finding]:
    stated = config.proof.training
    if stated is not None and schedulable(config) and training_pods(config, stated) == 1:
        yield finding(
            ("proof", "training", "pods"),
            "is 1: nothing crosses from node to node, and that is where Usernetes is slow",
            show(stated.pods),
            "add a worker, or take the result for what one node does",
        )
