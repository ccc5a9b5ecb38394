"""RKE2 with the GPU Operator: machines, their drivers, the cluster, its GPUs, the proof that they work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pulumi
import yaml

from components import kubernetes_objects
from components.kubernetes_objects import after
from components.rke2.cluster import Rke2Cluster, Rke2Host
from components.rke2.gpu_operator import GpuOperator, GpuSharing
from components.rke2.metrics import Metrics
from gpuclusters.boot.model import RebootPolicy
from gpuclusters.config import rke2_machines, rke2_plan
from gpuclusters.config.cluster import uses_lab
from gpuclusters.config.kubernetes import FileChart
from gpuclusters.config.rke2_cluster import (
    FoundCluster,
    KubePrometheusStack,
    MadeCluster,
    Mig,
    NoMetrics,
    RancherMonitoring,
    Rke2Config,
)
from gpuclusters.config.rke2_machines import MachinePlan, machines
from gpuclusters.config.secrets import Secrets
from gpuclusters.core import scripts
from gpuclusters.driver.model import DriverSource
from gpuclusters.driver.resource import GpuDriver
from gpuclusters.gcp import firewall_rules
from gpuclusters.gpu_operator import objects
from gpuclusters.gpu_operator.resource import GpuReadiness
from gpuclusters.metrics.monitoring_stack import NAMES
from gpuclusters.proof.checks import Level
from gpuclusters.proof.model import PROGRAMS
from gpuclusters.proof.resource import ProofRun
from gpuclusters.rke2 import host_config, releases
from gpuclusters.rke2.releases import Role
from gpuclusters.rke2.resource import Rke2Node
from stacks import charts, hosts
from stacks.hosts import Hosts, Outputs


def build(config: Rke2Config, secrets: Secrets) -> Outputs:
    made = _made(config, secrets) if isinstance(config, MadeCluster) else _found(secrets)
    in_cluster = kubernetes_objects.inside(
        made.kubeconfig,
        # Its certificates are renewed now and then, and it stays the same cluster.
        identifier=config.name,
        mutable_settings=True,
    )
    joined = after(*made.nodes.values(), opts=in_cluster)
    # Before the operator, which leaves its ServiceMonitor out while the kind is unknown.
    monitoring = None
    if not isinstance(config.metrics, NoMetrics):
        monitoring = _metrics(config, config.metrics, joined)
    operator = _operator(config, made, after(monitoring, opts=joined))
    sharing = GpuSharing(
        "gpu-sharing",
        after(operator, opts=in_cluster),
        cluster=config.name,
        kubeconfig=made.kubeconfig,
        mig=rke2_machines.mig_nodes(config),
        plugin_configs=rke2_machines.plugin_keys(config),
        evict=isinstance(config.sharing, Mig) and config.sharing.evict,
        mig_timeout_seconds=config.timeouts.mig_seconds,
        adopt=config.adopt.machines,
        namespace=config.operator.namespace,
    )
    gpus = GpuReadiness(
        "gpus-gate",
        cluster=config.name,
        kubeconfig=made.kubeconfig,
        expected=rke2_machines.expected(config),
        timeout_seconds=config.timeouts.ready_seconds,
        namespace=config.operator.namespace,
        triggers=operator.triggers,
        opts=after(operator, sharing),
    )
    proof = ProofRun(
        "proof",
        kubeconfig=made.kubeconfig,
        programs=scripts.digest(*(f"proof/{name}" for name in PROGRAMS)),
        opts=after(gpus),
        **rke2_plan.proof_arguments(config, Level(config.proof.level)),
    )
    return Outputs(
        kubeconfig=made.kubeconfig,
        nodes={
            plan.name: {
                "pool": plan.pool,
                "allocatable": gpus.allocatable.apply(partial(_of_node, plan.name)),
                **made.known(plan),
            }
            for plan in machines(config)
        },
        proof={"level": config.proof.level, **proof.verdict()},
    )


@dataclass(frozen=True, kw_only=True)
class _Cluster:
    """A cluster that the operator comes into. `known` is what is told of a node beside its GPUs."""

    kubeconfig: pulumi.Output[str]
    nodes: Mapping[str, Rke2Node]
    known: Callable[[MachinePlan], Mapping[str, Any]]


def _found(secrets: Secrets) -> _Cluster:
    """One that was there."""
    if secrets.kubeconfig is None:
        raise ValueError("a cluster that is there is reached with the secret kubeconfig")
    return _Cluster(kubeconfig=secrets.kubeconfig, nodes={}, known=lambda _: {"role": "node"})


def _made(config: MadeCluster, secrets: Secrets) -> _Cluster:
    """Machines, their drivers, RKE2."""
    there = hosts.declare(
        config.hosts,
        secrets.hosts,
        cluster=config.name,
        between_nodes=firewall_rules.rke2(
            config.cni.kind, metrics=not isinstance(config.metrics, NoMetrics)
        ),
        protect=config.servers if config.protect else (),
    )
    drivers = _drivers(config, there)
    made = _cluster(config, secrets, there, drivers)
    return _Cluster(
        kubeconfig=made.kubeconfig,
        nodes=made.nodes,
        known=lambda plan: {
            "role": plan.role.value,
            "driver": drivers[plan.name].driver_version if plan.name in drivers else "",
            "certificate_expires": made.nodes[plan.name].certificate_expires,
        },
    )


def _drivers(config: MadeCluster, there: Hosts) -> Mapping[str, GpuDriver]:
    """The driver of every machine with GPUs."""
    by_operator = {
        "source": DriverSource.OPERATOR.value,
        "reboot": RebootPolicy.ALLOW.value,
        "reboot_timeout_seconds": config.timeouts.driver_seconds,
    }
    plans = [one for one in machines(config) if one.gpus]
    made: dict[str, GpuDriver] = {}
    for turn, plan in enumerate(plans):
        # As many at a time as join: a new driver takes its node out of service.
        earlier = plans[turn - config.agents_at_once].name if turn >= config.agents_at_once else ""
        made[plan.name] = GpuDriver(
            f"{plan.name}-driver",
            connection=there.connections[plan.name].as_input(),
            gpus=plan.gpus,
            # A node is drained before its driver changes.
            control=[there.connections[n].as_input() for n in config.servers if n != plan.name],
            node_name=plan.name,
            drain_timeout_seconds=config.drain_timeout_seconds,
            adopt=plan.name in config.adopt.machines,
            opts=after(there.made.get(plan.name), made.get(earlier)),
            **(by_operator if plan.driver is None else plan.driver.inputs()),
        )
    return made


def _cluster(
    config: MadeCluster, secrets: Secrets, there: Hosts, drivers: Mapping[str, GpuDriver]
) -> Rke2Cluster:
    registries = _registries(config, secrets)
    nodes: dict[Role, list[Rke2Host]] = {Role.SERVER: [], Role.AGENT: []}
    for plan in machines(config):
        host = Rke2Host(
            connection=there.connections[plan.name],
            labels=plan.labels,
            taints=plan.taints,
            files=registries,
            after=drivers.get(plan.name) or there.made.get(plan.name),
        )
        nodes[plan.role].append(host)
    address = config.registration_address or hosts.own_address(config.hosts, *config.servers)
    return Rke2Cluster(
        config.name,
        version=config.version,
        artifacts=rke2_plan.artifacts(config),
        settings=rke2_plan.settings(config, registration_address=address),
        servers=nodes[Role.SERVER],
        agents=nodes[Role.AGENT],
        agents_at_once=config.agents_at_once,
        server_token=secrets.server_token,
        agent_token=secrets.agent_token,
        join_timeout_seconds=config.join_timeout_seconds,
        drain_timeout_seconds=config.drain_timeout_seconds,
        adopt=config.adopt.machines,
        protect=config.protect,
    )


def _registries(config: MadeCluster, secrets: Secrets) -> Mapping[str, pulumi.Input[str]]:
    """`registries.yaml` with passwords, where registries want them."""
    if secrets.registry_credentials is None:
        return {}

    def document(text: str) -> str:
        return host_config.document(rke2_plan.registries(config, yaml.safe_load(text)))

    return {
        releases.REGISTRIES: hosts.from_secret(
            "registry-credentials",
            secrets.registry_credentials,
            document,
            otherwise="it is not username and password by name",
        )
    }


def _metrics(
    config: Rke2Config,
    metrics: KubePrometheusStack | RancherMonitoring,
    opts: pulumi.ResourceOptions,
) -> Metrics:
    kind = rke2_plan.monitoring(config)
    names = NAMES[kind]
    chart = partial(
        charts.chart, lab=uses_lab(config), repository=names.repository, version=metrics.version
    )
    crds = None
    if isinstance(metrics, RancherMonitoring):
        crds = chart(metrics.crd_chart or metrics.chart, name=names.crd_release)
    return Metrics(
        "metrics",
        opts,
        kind=kind,
        chart=chart(metrics.chart, name=names.release),
        crd_chart=crds,
        values=rke2_plan.monitoring_values(config),
        expected=rke2_machines.expected(config),
    )


def _operator(config: Rke2Config, made: _Cluster, opts: pulumi.ResourceOptions) -> GpuOperator:
    stated = config.operator
    return GpuOperator(
        "gpu-operator",
        opts,
        cluster=config.name,
        kubeconfig=made.kubeconfig,
        chart=charts.chart(
            stated.chart,
            lab=uses_lab(config),
            repository=objects.REPOSITORY,
            name=objects.RELEASE,
            version=stated.version,
        ),
        chart_sha256=stated.chart.sha256 if isinstance(stated.chart, FileChart) else "",
        values=rke2_plan.operator_values(config),
        configs=rke2_plan.operator_configs(config),
        nodes=sorted(rke2_machines.expected(config)),
        distribution=config.kubernetes.distribution if isinstance(config, FoundCluster) else None,
        namespace=stated.namespace,
        timeout_seconds=config.timeouts.operator_seconds,
    )


def _of_node(name: str, found: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return dict(found.get(name) or {})
