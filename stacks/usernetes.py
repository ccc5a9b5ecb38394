"""Rootless Kubernetes: hosts with drivers, a node container on each, its GPUs, the proof that they work."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pulumi

from components import kubernetes_objects
from components.kubernetes_objects import after
from components.usernetes import (
    GpuPlugin,
    RootlessHost,
    UsernetesCluster,
    UsernetesHost,
)
from gpuclusters.config import usernetes_plan
from gpuclusters.config.secrets import Secrets
from gpuclusters.config.usernetes import NoExporter, UsernetesConfig
from gpuclusters.core import scripts
from gpuclusters.gcp import firewall_rules
from gpuclusters.proof.checks import CLUSTER_RUNGS, CheckLevel
from gpuclusters.proof.manifests import LADDER_PROGRAMS
from gpuclusters.proof.model import WHOLE
from gpuclusters.proof.resource import TrainingProof
from gpuclusters.usernetes import api_tunnel
from stacks import hosts
from stacks.hosts import Outputs


def build(config: UsernetesConfig, secrets: Secrets) -> Outputs:
    there = hosts.declare(
        config.hosts,
        secrets.hosts,
        cluster=config.name,
        between_nodes=firewall_rules.usernetes(config.network.ports),
        protect=[config.control_plane.host] if config.protect else (),
    )
    versions, api = usernetes_plan.versions(config), usernetes_plan.api(config)
    prepared = {
        name: RootlessHost(
            name,
            after(there.made.get(name)),
            connection=connection,
            account=config.account,
            gpus=config.gpus.count,
            driver=usernetes_plan.driver(config),
            versions=versions,
            sudo=usernetes_plan.uses_sudo(config),
            ports=usernetes_plan.tcp_ports(config),
            remove_data=config.preparation.remove_data,
        )
        for name, connection in there.connections.items()
    }
    first, *others = (
        UsernetesHost(
            connection=there.connections[node.host],
            account=config.account,
            number=node.number,
            gpus=config.gpus.count,
            host_ip=node.host_ip,
            after=prepared[node.host],
        )
        for node in usernetes_plan.nodes(config)
    )
    made = UsernetesCluster(
        config.name,
        versions=versions,
        control_plane=first,
        workers=others,
        network=usernetes_plan.network(config),
        api=api,
        join_token_hours=config.join_token_hours,
        schedule_on_control_plane=config.schedule_on_control_plane,
        join_timeout_seconds=config.timeouts.join_seconds,
        build_timeout_seconds=config.timeouts.build_seconds,
        drain_timeout_seconds=config.timeouts.drain_seconds,
        protect=config.protect,
    )
    kubeconfig = api_tunnel.open_first(
        made.kubeconfig,
        access=api,
        connection=there.connections[config.control_plane.host].as_input(),
        private_key=secrets.ssh_private_key,
        remote_port=config.network.ports.kube_apiserver,
    )
    in_cluster = kubernetes_objects.inside(
        kubeconfig,
        # Its certificates are renewed now and then, and it stays the same cluster.
        identifier=config.name,
        # A cluster that is gone took its objects with it.
        delete_unreachable=True,
    )
    # A node that was made anew, or has other GPUs, is waited for and proven again.
    gpus = {
        f"gpus of {name}": node.gpu_uuids.apply(lambda uuids: " ".join(sorted(uuids)))
        for name, node in made.nodes.items()
    }
    plugin = GpuPlugin(
        "gpus",
        after(*made.nodes.values(), opts=in_cluster),
        cluster=config.name,
        kubeconfig=kubeconfig,
        versions=versions,
        nodes=dict.fromkeys(made.nodes, config.gpus.count),
        triggers=list(gpus.values()),
        metrics=not isinstance(config.metrics, NoExporter),
        timeout_seconds=config.timeouts.gpus_seconds,
    )
    return Outputs(
        kubeconfig=made.kubeconfig,
        nodes={
            node.host: {
                "role": "control-plane" if node is config.control_plane else "worker",
                "number": node.number,
                "driver": prepared[node.host].facts.apply(
                    lambda facts: str(facts.get("driver") or "")
                ),
                "allocatable": plugin.allocatable.apply(partial(_of_node, node.host)),
                "certificate_expires": made.nodes[node.host].certificate_expires,
            }
            for node in usernetes_plan.nodes(config)
        },
        proof=_proof(config, kubeconfig, gpus, plugin),
    )


def _proof(
    config: UsernetesConfig,
    kubeconfig: pulumi.Output[str],
    gpus: Mapping[str, pulumi.Output[str]],
    plugin: GpuPlugin,
) -> Mapping[str, Any]:
    if config.proof.rung < CLUSTER_RUNGS[0]:
        # Rungs 1 to 4 are gates of the hosts: without them nothing of this would be there.
        return {"rung": config.proof.rung, "verdict": "passed"}
    asked = usernetes_plan.arguments(config, CheckLevel(config.proof.rung))
    proof = TrainingProof(
        "proof",
        **{**asked, "versions": {**asked["versions"], **gpus}},
        kubeconfig=kubeconfig,
        programs=scripts.digest(*(f"proof/{program}" for program in LADDER_PROGRAMS)),
        opts=after(plugin),
    )
    return {"rung": config.proof.rung, **proof.verdict()}


def _of_node(name: str, found: Mapping[str, int]) -> dict[str, int]:
    return {WHOLE: found[name]} if name in found else {}
