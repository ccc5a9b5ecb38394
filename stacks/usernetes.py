"""Rootless Kubernetes: hosts with drivers, a node container on each, its GPUs, the proof that they work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pulumi

from components import kubernetes_objects
from components.host_connection import HostConnection
from components.usernetes import api_way
from components.usernetes.cluster import (
    UsernetesCluster,
    UsernetesClusterArgs,
    UsernetesHost,
    UsernetesTimeouts,
)
from components.usernetes.gpu_plugin import GpuPlugin, GpuPluginArgs
from components.usernetes.proof import TrainingProof, TrainingProofArgs
from components.usernetes.rootless_host import RootlessHost, RootlessHostArgs
from gpuclusters.config import ladder_plan, usernetes_plan
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.config.usernetes_proof import NoExporter
from gpuclusters.config.usernetes_secrets import Secrets
from gpuclusters.proof.ladder import CheckLevel
from stacks import reach


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """What others build on."""

    kubeconfig: pulumi.Output[str]
    """Secret. With `api.through: tunnel` it holds while `gpu-clusters tunnel` runs."""
    nodes: Mapping[str, Mapping[str, Any]]
    """By node: `role`, `number`, `driver`, `allocatable`, `certificate_expires`."""
    proof: Mapping[str, Any]
    """`rung`, `verdict`, `at`, and the digest of the evidence."""


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """The machines of a cluster."""

    connections: Mapping[str, HostConnection]
    """By name."""
    ready: Mapping[str, Sequence[pulumi.Resource]] = field(default_factory=dict)
    """By name: what must be there before it is used."""


def build(config: UsernetesConfig, secrets: Secrets) -> Outputs:
    """Declare the cluster."""
    hosts = _hosts(config, secrets)
    prepared = {
        name: RootlessHost(name, _prepared(config, hosts, name)) for name in hosts.connections
    }
    made = UsernetesCluster(config.name, _cluster(config, hosts, prepared))
    kubeconfig = api_way.open_api_tunnel(
        made.kubeconfig,
        access=usernetes_plan.api(config),
        host=hosts.connections[config.control_plane.host],
        private_key=secrets.ssh_private_key,
        remote_port=usernetes_plan.ports(config).kube_apiserver,
    )
    in_cluster = kubernetes_objects.inside(
        kubeconfig,
        # Its certificates are renewed now and then, and it stays the same cluster.
        identifier=config.name,
        # A cluster that is gone took its objects with it.
        delete_unreachable=True,
    )
    # A node that was made anew, or has other GPUs, is waited for and proven again.
    gpus = {f"gpus of {name}": node.gpu_uuids.apply(_listed) for name, node in made.nodes.items()}
    plugin = GpuPlugin(
        "gpus",
        GpuPluginArgs(
            cluster=config.name,
            kubeconfig=kubeconfig,
            versions=usernetes_plan.versions(config),
            nodes=dict.fromkeys(made.nodes, config.gpus.count),
            triggers=list(gpus.values()),
            metrics=not isinstance(config.metrics, NoExporter),
            timeout_seconds=config.timeouts.gpus_seconds,
            requires=list(made.nodes.values()),
        ),
        in_cluster,
    )
    asked = ladder_plan.arguments(config, CheckLevel(config.proof.rung))
    proof = TrainingProof(
        "proof",
        TrainingProofArgs(
            **{**asked, "versions": {**asked["versions"], **gpus}},
            kubeconfig=kubeconfig,
            requires=plugin.ready,
        ),
    )
    return Outputs(
        kubeconfig=made.kubeconfig,
        nodes={
            plan.name: {
                "role": plan.role,
                "number": plan.number,
                "driver": prepared[plan.name].facts.apply(_driver_version),
                "allocatable": plugin.allocatable.apply(partial(_of_node, plan.name)),
                "certificate_expires": made.certificate_expires[plan.name],
            }
            for plan in usernetes_plan.nodes(config)
        },
        proof=_shown(config, proof),
    )


def _hosts(config: UsernetesConfig, secrets: Secrets) -> Hosts:
    if not isinstance(config.hosts, GcpHosts):
        return Hosts(
            connections={
                name: reach.connection(name, machine) for name, machine in secrets.hosts.items()
            }
        )
    # Its packages are large, and nobody else needs them.
    from stacks import google_cloud

    made = google_cloud.declare(
        config.hosts, cluster=config.name, between_nodes=usernetes_plan.firewall(config)
    )
    return Hosts(connections=made.connections, ready=made.ready)


def _prepared(config: UsernetesConfig, hosts: Hosts, name: str) -> RootlessHostArgs:
    return RootlessHostArgs(
        connection=hosts.connections[name],
        account=config.account,
        gpus=config.gpus.count,
        driver=usernetes_plan.driver(config),
        versions=usernetes_plan.versions(config),
        sudo=usernetes_plan.uses_sudo(config),
        ports=usernetes_plan.tcp_ports(config),
        remove_data=config.preparation.remove_data,
        requires=hosts.ready.get(name, ()),
    )


def _cluster(
    config: UsernetesConfig, hosts: Hosts, prepared: Mapping[str, RootlessHost]
) -> UsernetesClusterArgs:
    first, *others = (
        UsernetesHost(
            connection=hosts.connections[plan.name],
            account=config.account,
            number=plan.number,
            gpus=plan.gpus,
            host_ip=plan.host_ip,
            requires=prepared[plan.name].ready,
        )
        for plan in usernetes_plan.nodes(config)
    )
    return UsernetesClusterArgs(
        versions=usernetes_plan.versions(config),
        control_plane=first,
        workers=others,
        network=usernetes_plan.network(config),
        api=usernetes_plan.api(config),
        join_token_hours=config.join_token_hours,
        schedule_on_control_plane=config.schedule_on_control_plane,
        timeouts=UsernetesTimeouts(
            join=config.timeouts.join_seconds,
            build=config.timeouts.build_seconds,
            drain=config.timeouts.drain_seconds,
        ),
    )


def _shown(config: UsernetesConfig, proof: TrainingProof) -> Mapping[str, Any]:
    if proof.run is None:
        # Rungs 1 to 4 are gates of the hosts: without them nothing of this would be there.
        return {"rung": config.proof.rung, "verdict": "passed"}
    return {
        "rung": config.proof.rung,
        "verdict": proof.run.proven.apply(_verdict),
        "at": proof.run.at,
        "evidence_sha256": proof.run.evidence_sha256,
    }


def _listed(uuids: Sequence[str]) -> str:
    return " ".join(sorted(uuids))


def _driver_version(facts: Mapping[str, Any]) -> str:
    return str(facts.get("driver") or "")


def _of_node(name: str, found: Mapping[str, int]) -> dict[str, int]:
    return {usernetes_plan.GPU: found[name]} if name in found else {}


def _verdict(proven: bool) -> str:  # noqa: FBT001
    return "passed" if proven else "failed"
