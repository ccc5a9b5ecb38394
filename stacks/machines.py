"""The HGX machines of a `caas` cluster: all looked at first, then each prepared on its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from components.caas.gpu_host import GpuHost, GpuHostArgs, RuntimeDropIns
from components.caas.host_preparation import HostPreparationArgs
from components.caas.service_vm import ServiceVmArgs
from components.host_connection import HostConnection
from gpuclusters.config import service_vm
from gpuclusters.config.boot import boot_profile
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.caas_secrets import Secrets
from gpuclusters.config.expectations import expects
from gpuclusters.config.kubernetes import Rke2Kubernetes
from gpuclusters.config.machine_preparation import machine_preparation
from gpuclusters.config.nodes import Node
from gpuclusters.config.plan import CaasPlan, NodePlan
from gpuclusters.host import drop_ins
from gpuclusters.providers.fleet_preflight import FleetPreflight
from stacks import reach


@dataclass(frozen=True, kw_only=True)
class Machines:
    """The machines of a cluster."""

    fit: pulumi.Resource
    """All of them were found fit: what changes a machine of the cluster waits for this."""
    hosts: Mapping[str, GpuHost]
    """By name."""


def declare(config: CaasConfig, cluster: CaasPlan, secrets: Secrets) -> Machines:
    """The machines. None is changed before all of them were found fit."""
    connections = {
        node.name: reach.connection(node.name, secrets.hosts[node.name]) for node in cluster.nodes
    }
    fit = FleetPreflight(
        "preflight",
        cluster=config.name,
        machines=[
            {
                "connection": connections[node.name].as_input(),
                "expects": expects(config, node).model_dump(mode="json"),
            }
            for node in config.nodes
        ],
    )
    hosts = {
        node.name: GpuHost(
            node.name, _host(config, cluster, node, stated, connections[node.name], secrets, fit)
        )
        for node, stated in zip(cluster.nodes, config.nodes, strict=True)
    }
    return Machines(fit=fit, hosts=hosts)


def _host(
    config: CaasConfig,
    cluster: CaasPlan,
    node: NodePlan,
    stated: Node,
    reached: HostConnection,
    secrets: Secrets,
    fit: pulumi.Resource,
) -> GpuHostArgs:
    own = config.own_table
    return GpuHostArgs(
        preparation=_preparation(config, stated, reached, secrets, fit),
        expects=expects(config, stated).model_dump(mode="json"),
        service_vm=ServiceVmArgs(
            connection=reached, board=node.board, settings=_service_vm(config, stated)
        ),
        baseboard=cluster.preset.baseboard,
        table={str(number): list(modules) for number, modules in own.items()} if own else None,
        partitions=(
            [cut.id for cut in node.partitions] if node.declared and node.layout is None else None
        ),
        layout=node.layout,
        fabric_manager_host=cluster.fabric_manager_host,
        # Not stated, it is that of Kata's image, which the rules hold equal to the fabric manager's.
        guest_driver=config.versions.guest_driver or config.versions.fabric_manager,
        cdi_kind=config.device_access.cdi_kind,
        vfio=config.device_access.vfio.value,
        drop_ins=_drop_ins(config),
        protect_partitions=config.protect_partitions,
        adopt=stated.name in config.adopt.machines,
    )


def _service_vm(config: CaasConfig, node: Node) -> Mapping[str, Any]:
    stated = service_vm.settings(config)
    return {**stated, "adopt": stated["adopt"] or node.name in config.adopt.machines}


def _preparation(
    config: CaasConfig,
    node: Node,
    reached: HostConnection,
    secrets: Secrets,
    fit: pulumi.Resource,
) -> HostPreparationArgs:
    wanted = machine_preparation(config, node)
    return HostPreparationArgs(
        connection=reached,
        private_key=secrets.ssh_private_key,
        kernel_arguments=wanted.kernel_arguments,
        files=wanted.files,
        vfio_functions=[function.model_dump(mode="json") for function in wanted.functions],
        huge_pages_1g_by_numa_node=wanted.huge_pages_1g,
        packages=wanted.packages,
        may_reboot=wanted.may_reboot,
        reboot_timeout_seconds=wanted.reboot_timeout_seconds,
        adopt=node.name in config.adopt.machines,
        requires=[fit],
    )


def _drop_ins(config: CaasConfig) -> RuntimeDropIns | None:
    if isinstance(config.kubernetes, Rke2Kubernetes):
        return None  # it reads others, and only when it starts: stacks/caas_rke2.py
    containerd = config.kubernetes.containerd
    return RuntimeDropIns(
        kubelet=drop_ins.kubelet(
            runtime_request_timeout_seconds=boot_profile(config).kubelet_request_timeout
        ),
        containerd=drop_ins.containerd(
            schema=drop_ins.ContainerdSchema(containerd.config_version.value),
            enable_cdi=containerd.enable_cdi,
            image_pull_progress_timeout_seconds=containerd.image_pull_progress_timeout_seconds,
        ),
    )
