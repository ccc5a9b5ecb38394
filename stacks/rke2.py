"""RKE2 with the GPU Operator: machines, their drivers, the cluster, its GPUs, the proof that they work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pulumi

from components import kubernetes_objects
from components.rke2.cluster import Rke2Cluster
from components.rke2.driver_host import DriverHost
from components.rke2.gpu_operator import GpuOperator, GpuOperatorArgs
from components.rke2.gpu_ready import GpuReady, GpuReadyArgs
from components.rke2.gpu_sharing import GpuSharing, GpuSharingArgs, MigNode
from components.rke2.metrics import Metrics, MetricsArgs
from components.rke2.proof import Proof, ProofArgs
from gpuclusters.config import rke2_cluster_gpus, rke2_cluster_plan
from gpuclusters.config.charts import FileChart
from gpuclusters.config.lab import uses_lab
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.rke2_cluster_machines import machines
from gpuclusters.config.rke2_cluster_metrics import NoMetrics, RancherMonitoring
from gpuclusters.config.rke2_cluster_sharing import Mig
from gpuclusters.config.rke2_secrets import Secrets
from gpuclusters.domain import monitoring_stack
from gpuclusters.domain.monitoring_stack import NAMES
from gpuclusters.gpu_operator import objects
from stacks import charts, rke2_hosts, rke2_machines


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """What others build on."""

    kubeconfig: pulumi.Output[str]
    """Secret."""
    nodes: Mapping[str, Mapping[str, Any]]
    """By node: `role`, `pool`, `driver`, `allocatable`, `certificate_expires`."""
    proof: Mapping[str, Any]
    """`level`, `verdict`, `at`, and the digest of the evidence."""


def build(config: Rke2Config, secrets: Secrets) -> Outputs:
    """Declare the cluster."""
    hosts = rke2_hosts.declare(config, secrets)
    drivers = rke2_machines.drivers(config, hosts.connections, requires=hosts.ready)
    ready = {
        **hosts.ready,
        **{name: driver.ready for name, driver in drivers.items()},
    }
    made = rke2_machines.cluster(
        config, secrets, hosts.connections, ready, address=hosts.registration_address
    )
    in_cluster = kubernetes_objects.inside(
        made.kubeconfig,
        # Its certificates are renewed now and then, and it stays the same cluster.
        identifier=config.name,
        mutable_settings=True,
    )
    joined = list(made.nodes.values())
    metrics = Metrics("metrics", _metrics(config, joined), in_cluster)
    operator = GpuOperator(
        "gpu-operator", _operator(config, made, [*joined, *metrics.ready]), in_cluster
    )
    sharing = GpuSharing("gpu-sharing", _sharing(config, made, operator.ready), in_cluster)
    gpus = GpuReady(
        "gpus",
        GpuReadyArgs(
            cluster=config.name,
            kubeconfig=made.kubeconfig,
            expected=rke2_cluster_gpus.expected(config),
            timeout_seconds=config.timeouts.ready_seconds,
            namespace=config.operator.namespace,
            triggers=operator.triggers,
            requires=[*operator.ready, *sharing.ready],
        ),
        in_cluster,
    )
    proof = Proof("proof", _proof(config, made, gpus.ready), in_cluster)
    return Outputs(
        kubeconfig=made.kubeconfig,
        nodes=_nodes(config, made, drivers, gpus),
        proof={
            "level": config.proof.level,
            "verdict": proof.run.proven.apply(_verdict),
            "at": proof.run.at,
            "evidence_sha256": proof.run.evidence_sha256,
        },
    )


def _metrics(config: Rke2Config, requires: Sequence[pulumi.Resource]) -> MetricsArgs:
    kind = rke2_cluster_plan.monitoring(config)
    metrics = config.metrics
    if isinstance(metrics, NoMetrics):
        return MetricsArgs(kind=kind)
    lab = uses_lab(config)
    repository = monitoring_stack.REPOSITORIES[kind]
    names = NAMES[kind]
    crds = None
    if isinstance(metrics, RancherMonitoring):
        crds = charts.chart(
            metrics.crd_chart or metrics.chart,
            lab=lab,
            repository=repository,
            name=names.crd_release,
            version=metrics.version,
        )
    return MetricsArgs(
        kind=kind,
        chart=charts.chart(
            metrics.chart,
            lab=lab,
            repository=repository,
            name=names.release,
            version=metrics.version,
        ),
        crd_chart=crds,
        values=rke2_cluster_plan.monitoring_values(config),
        expected=rke2_cluster_gpus.expected(config),
        requires=requires,
    )


def _operator(
    config: Rke2Config, made: Rke2Cluster, requires: Sequence[pulumi.Resource]
) -> GpuOperatorArgs:
    stated = config.operator
    chart = charts.chart(
        stated.chart,
        lab=uses_lab(config),
        repository=objects.REPOSITORY,
        name=objects.RELEASE,
        version=stated.version,
    )
    if chart is None:
        raise RuntimeError("the GPU Operator has no chart, which the configuration cannot say")
    return GpuOperatorArgs(
        cluster=config.name,
        kubeconfig=made.kubeconfig,
        chart=chart,
        chart_sha256=stated.chart.sha256 if isinstance(stated.chart, FileChart) else "",
        values=rke2_cluster_plan.operator_values(config),
        configs=rke2_cluster_plan.operator_configs(config),
        nodes=sorted(rke2_cluster_gpus.expected(config)),
        namespace=stated.namespace,
        timeout_seconds=config.timeouts.operator_seconds,
        requires=requires,
    )


def _sharing(
    config: Rke2Config, made: Rke2Cluster, requires: Sequence[pulumi.Resource]
) -> GpuSharingArgs:
    return GpuSharingArgs(
        cluster=config.name,
        kubeconfig=made.kubeconfig,
        mig={
            name: MigNode(layout=plan.layout, expected=plan.expected)
            for name, plan in rke2_cluster_gpus.mig_nodes(config).items()
        },
        plugin_configs=rke2_cluster_gpus.plugin_keys(config),
        evict=isinstance(config.sharing, Mig) and config.sharing.evict,
        mig_timeout_seconds=config.timeouts.mig_seconds,
        adopt=config.adopt.machines,
        namespace=config.operator.namespace,
        requires=requires,
    )


def _proof(config: Rke2Config, made: Rke2Cluster, requires: Sequence[pulumi.Resource]) -> ProofArgs:
    return ProofArgs(
        cluster=config.name,
        kubeconfig=made.kubeconfig,
        level=config.proof.level,
        nodes=[node.model_dump(mode="json") for node in rke2_cluster_plan.proof_nodes(config)],
        tests=rke2_cluster_plan.proof_tests(config),
        namespace=config.proof.namespace,
        operator_namespace=config.operator.namespace,
        prometheus=monitoring_stack.prometheus(rke2_cluster_plan.monitoring(config)),
        tolerations=rke2_cluster_plan.proof_tolerations(config),
        driver=rke2_cluster_plan.driver_of_all(config),
        operator=config.operator.version,
        timeout_seconds=config.timeouts.proof_seconds,
        simulated=uses_lab(config),
        requires=requires,
    )


def _nodes(
    config: Rke2Config, made: Rke2Cluster, drivers: Mapping[str, DriverHost], gpus: GpuReady
) -> Mapping[str, Mapping[str, Any]]:
    return {
        plan.name: {
            "role": plan.role.value,
            "pool": plan.pool.name if plan.pool is not None else "",
            "driver": drivers[plan.name].driver_version if plan.name in drivers else "",
            "allocatable": gpus.allocatable.apply(partial(_of_node, plan.name)),
            "certificate_expires": made.certificate_expires[plan.name],
        }
        for plan in machines(config)
    }


def _of_node(name: str, found: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return dict(found.get(name) or {})


def _verdict(proven: bool) -> str:  # noqa: FBT001
    return "passed" if proven else "failed"
