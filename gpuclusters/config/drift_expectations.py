"""What the configuration expects of a running cluster, for `drift`, which knows nothing of types. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuclusters.config import usernetes_plan
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.kubernetes import LabKubernetes, Rke2Kubernetes
from gpuclusters.config.plan import table
from gpuclusters.config.rke2_cluster import FoundCluster, MadeCluster, Rke2Config
from gpuclusters.config.rke2_machines import expected as expected_gpus
from gpuclusters.config.rke2_machines import machines
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.core.section import Section
from gpuclusters.drift.nodes import Expected, ExpectedNode
from gpuclusters.gpu_operator.objects import PRESENT_LABEL
from gpuclusters.lease.model import RecyclePolicy
from gpuclusters.proof.model import WHOLE
from gpuclusters.rke2.host_config import CONTROL_PLANE_TAINT
from gpuclusters.rke2.releases import Role
from gpuclusters.usernetes.decide import CONTROL_PLANE


def expected(section: Section, golden: Mapping[str, Sequence[str]]) -> Expected:
    """What a cluster must be like; `golden`: accepted firmware where none is stated, that of a lab."""
    if isinstance(section, CaasConfig):
        return _caas(section, golden)
    if isinstance(section, Rke2Config):
        return _rke2(section)
    if isinstance(section, UsernetesConfig):
        return _usernetes(section)
    raise AssertionError(f"nothing is known of {type(section).__name__}")


def _caas(config: CaasConfig, golden: Mapping[str, Sequence[str]]) -> Expected:
    gpus = max(table(config).sizes)
    cluster = config.kubernetes
    # The taints of servers follow from what runs on them, and from RKE2's own settings.
    servers = cluster.servers if isinstance(cluster, Rke2Kubernetes) else ()
    own = isinstance(cluster, LabKubernetes | Rke2Kubernetes)
    stated = config.leases.golden_firmware.versions or golden
    full = config.leases.recycle_policy is RecyclePolicy.FULL
    return Expected(
        nodes=tuple(
            ExpectedNode(
                node.name,
                labels=config.kata.node_selector,
                allocatable={config.device_access.resource_name: gpus},
                serves=node.maintenance is None,
            )
            for node in config.nodes
        ),
        others=frozenset(server.name for server in servers),
        marks={} if own else config.kata.node_selector,
        leases={node.name: gpus for node in config.nodes},
        tenants=frozenset(tenant.name for tenant in config.tenants),
        on_demand=config.tenants_on_demand is not None,
        firmware={item: tuple(versions) for item, versions in stated.items()} if full else {},
    )


def _rke2(config: Rke2Config) -> Expected:
    offered = expected_gpus(config)
    dedicated = isinstance(config, MadeCluster) and config.dedicated_servers
    taints = {Role.SERVER: [CONTROL_PLANE_TAINT]} if dedicated else {}
    return Expected(
        nodes=tuple(
            ExpectedNode(
                machine.name,
                labels=dict(machine.labels),
                taints=frozenset((*machine.taints, *taints.get(machine.role, ()))),
                allocatable=offered.get(machine.name, {}),
            )
            for machine in machines(config)
        ),
        # Nodes without GPUs of a cluster that was there are somebody else's business.
        marks={PRESENT_LABEL: "true"} if isinstance(config, FoundCluster) else {},
    )


def _usernetes(config: UsernetesConfig) -> Expected:
    return Expected(
        nodes=tuple(
            ExpectedNode(
                node.host,
                taints=frozenset(
                    ()
                    if node in config.workers or config.schedule_on_control_plane
                    else (f"{CONTROL_PLANE}:NoSchedule",)
                ),
                allocatable={WHOLE: config.gpus.count},
            )
            for node in usernetes_plan.nodes(config)
        )
    )
