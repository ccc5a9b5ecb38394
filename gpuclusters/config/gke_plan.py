"""From the section of a `gke` cluster to the arguments of its components. Pure."""

from typing import Any

from gpuclusters.config import gcp
from gpuclusters.config.gke import ControlPlaneKind, GkeConfig, GkePool
from gpuclusters.config.usernetes_plan import ladder
from gpuclusters.gcp.machine_types import Provisioning, attachable
from gpuclusters.gcp.model import GkePlan
from gpuclusters.proof.checks import CheckLevel
from gpuclusters.proof.model import WHOLE

GPU_TAINT = {"key": WHOLE, "value": "present", "effect": "NO_SCHEDULE"}
"""What Google puts on nodes with GPUs in a cluster that has others: only pods that ask for GPUs run there."""
SCOPES = "https://www.googleapis.com/auth/"


def gpus_per_node(config: GkeConfig) -> int:
    """The least of all nodes with GPUs: every pod of the training gets so many."""
    return min((pool.gpu.count for pool in config.pools if pool.gpu), default=1)


def gpu_nodes(config: GkeConfig) -> int:
    """Nodes with GPUs that are always there."""
    return sum(pool.nodes for pool in config.gpu_pools)


def plan(config: GkeConfig, owner: str) -> GkePlan:
    network = config.network
    labels = {**config.labels, "gpu-clusters-cluster": config.name, "gpu-clusters-owner": owner}
    ranges = {"pods": str(network.pods), "services": str(network.services)}
    return GkePlan(
        project=config.project,
        region=config.region,
        cluster=config.name,
        owner=owner,
        network={"cidr": str(network.cidr), "mtu": network.mtu, "secondary": ranges},
        account_id=gcp.account_id(config.name),
        roles=config.service_account.roles,
        arguments=_cluster(config, labels),
        pools={pool.name: _pool(config, pool, labels) for pool in config.pools},
        needs={
            f"{pool.name}-{number}": gcp.needs(pool, public_address=False)
            for pool in config.pools
            for number in range(1, pool.nodes + 1)
        },
        protect=config.protect,
    )


def _cluster(config: GkeConfig, labels: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "location": config.location,
        "release_channel": {"channel": config.release_channel.value.upper()},
        "min_master_version": config.version,
        "private_cluster_config": {
            "enable_private_nodes": True,
            "enable_private_endpoint": False,
            "master_ipv4_cidr_block": str(config.network.control_plane),
        },
        "master_authorized_networks_config": {
            "cidr_blocks": [{"cidr_block": str(one)} for one in config.api_ranges],
            "gcp_public_cidrs_access_enabled": False,
        },
        "resource_labels": labels,
        "deletion_protection": config.protect,
    }
    if config.control_plane is ControlPlaneKind.REGIONAL:
        found["node_locations"] = [config.zone]
    if config.workload_identity:
        pool = f"{config.project}.svc.id.goog"
        found["workload_identity_config"] = {"workload_pool": pool}
    if config.metrics == "dcgm":
        found["monitoring_config"] = {"enable_components": ["SYSTEM_COMPONENTS", "DCGM"]}
    return found


def _pool(config: GkeConfig, pool: GkePool, labels: dict[str, str]) -> dict[str, Any]:
    """Count and machines of a pool, as pulumi-gcp takes them, but the account."""
    node: dict[str, Any] = {
        "machine_type": pool.machine_type,
        "spot": pool.provisioning is Provisioning.SPOT,
        "disk_size_gb": pool.disk.size_gib,
        "disk_type": pool.disk.type,
        "image_type": "COS_CONTAINERD",
        "oauth_scopes": [f"{SCOPES}{scope}" for scope in config.service_account.scopes],
        "resource_labels": labels,
        "metadata": {"disable-legacy-endpoints": "true"},
        "shielded_instance_config": {
            "enable_integrity_monitoring": True,
            # Nobody has seen here that the driver Google installs is loaded under Secure Boot.
            "enable_secure_boot": pool.gpu is None,
        },
        "workload_metadata_config": {
            "mode": "GKE_METADATA" if config.workload_identity else "GCE_METADATA"
        },
    }
    if pool.gpu and (found := attachable(pool.gpu.product)):
        driver = {"gpu_driver_version": pool.driver.value.upper()}
        cards = {"type": found[0], "count": pool.gpu.count}
        node["guest_accelerators"] = [{**cards, "gpu_driver_installation_config": driver}]
        node["taints"] = [GPU_TAINT]
    if pool.most_nodes is None:
        return {"node_count": pool.nodes, "node_config": node}
    # Per cluster and not per zone; they are the same, as all nodes are in one.
    sizes = {"total_min_node_count": pool.nodes, "total_max_node_count": pool.most_nodes}
    return {"autoscaling": sizes, "initial_node_count": pool.nodes, "node_config": node}


def arguments(config: GkeConfig, highest: CheckLevel) -> dict[str, Any]:
    """The inputs of the ladder up to a rung, but the kubeconfig."""
    return {
        **ladder(
            config.name,
            config.proof,
            highest,
            pods=gpu_nodes(config),
            gpus=gpus_per_node(config),
            rung_seconds=config.timeouts.rung_seconds,
            proof_seconds=config.timeouts.proof_seconds,
        ),
        "nodes": [],
        "pools": [
            {"name": pool.name, "nodes": pool.nodes, "gpus": pool.gpu.count}
            for pool in config.pools
            if pool.gpu
        ],
        "settle_seconds": config.timeouts.nodes_seconds,
    }
