"""From `hosts` with `source: gcp` to the machines as they are asked for. Pure; no value of Pulumi in it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from typing import Any

from gpuclusters.config.gcp import (
    IAP_RANGE,
    GcpGroup,
    GcpHosts,
    IapAccess,
    OwnNetwork,
    PinnedImage,
    instance_name,
)
from gpuclusters.gcp.firewall_rules import Allowed
from gpuclusters.gcp.machine_types import Provisioning, attachable, machine_type
from gpuclusters.gcp.model import PoolPlan

LONGEST_ACCOUNT = 30
_DIGITS = 6
ALL_GPUS = "GPUS_ALL_REGIONS"
SPOT_PREFIX = "PREEMPTIBLE_"
CPU_QUOTAS = {"n2": "N2_CPUS", "a2": "A2_CPUS"}
"""Series that do not count towards CPUS. A3 has no quota of processors."""


def owner(project: str, stack: str) -> str:
    """The value of a label that says which stack a machine belongs to."""
    return re.sub(r"[^a-z0-9_-]", "-", f"{project}-{stack}".lower())[:63]


def account_id(cluster: str) -> str:
    """The machines' account: Google allows 30 characters, and a cut name must not meet another."""
    whole = f"{cluster}-nodes"
    if len(whole) <= LONGEST_ACCOUNT:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:_DIGITS]
    return f"{whole[: LONGEST_ACCOUNT - _DIGITS - 1].rstrip('-')}-{digest}"


def pool(
    hosts: GcpHosts,
    *,
    cluster: str,
    owner: str,
    between_nodes: Sequence[Allowed],
    protect: Collection[str] = (),
) -> PoolPlan:
    """All machines of a cluster, in the order of the configuration, and what they have in common."""
    network, access = hosts.network, hosts.access
    if isinstance(network, OwnNetwork):
        made: dict[str, Any] | None = {"cidr": str(network.cidr), "mtu": network.mtu}
        project, name, subnetwork = hosts.project, cluster, cluster
    else:
        made, project = None, network.project or hosts.project
        name, subnetwork = network.network, network.subnetwork
    public = not isinstance(access, IapAccess) and access.public_addresses
    common = {
        "project": hosts.project,
        "zones": list(hosts.zones),
        "owner": owner,
        "subnetwork": f"projects/{project}/regions/{hosts.region}/subnetworks/{subnetwork}",
        "public_address": public,
        "tags": [cluster],
        "scopes": list(hosts.service_account.scopes),
        "deletion_protection": hosts.deletion_protection,
    }
    groups = {machine: group for group in hosts.groups for machine in group.machines}
    machines = {
        machine: {
            **common,
            "name": instance_name(cluster, machine),
            **_of_group(hosts, group, cluster),
        }
        for machine, group in groups.items()
    }
    return PoolPlan(
        project=hosts.project,
        region=hosts.region,
        cluster=cluster,
        owner=owner,
        network=made,
        network_project=project,
        network_path=f"projects/{project}/global/networks/{name}",
        ssh_sources=(
            (IAP_RANGE,) if isinstance(access, IapAccess) else tuple(map(str, access.ranges))
        ),
        between_nodes=between_nodes,
        account_id=account_id(cluster),
        roles=hosts.service_account.roles,
        machines=machines,
        needs={
            instance_name(cluster, machine): _needs(group, public_address=public)
            for machine, group in groups.items()
        },
        user=hosts.user,
        authorized_keys=hosts.authorized_keys,
        through_iap=isinstance(access, IapAccess),
        protect=protect,
    )


def _of_group(hosts: GcpHosts, group: GcpGroup, cluster: str) -> dict[str, Any]:
    image, gpu, disk = hosts.image, group.gpu, group.disk
    # The image or the newest of its family.
    source = image.name if isinstance(image, PinnedImage) else f"family/{image.family}"
    added = attachable(gpu.product) if gpu else None
    return {
        "machine_type": group.machine_type,
        "gpus": gpu.count if gpu else 0,
        "provisioning": group.provisioning.value,
        "disk": {
            "image": f"projects/{image.project}/global/images/{source}",
            "size_gib": disk.size_gib,
            "type": disk.type,
        },
        "labels": {
            **hosts.labels,
            "gpu-clusters-cluster": cluster,
            "gpu-clusters-role": group.role,
        },
        **({"accelerator": {"type": added[0], "count": gpu.count}} if gpu and added else {}),
    }


def _needs(group: GcpGroup, *, public_address: bool) -> dict[str, float]:
    """What one machine of a group counts for in quotas, whose type the rules know."""
    size, gpu = machine_type(group.machine_type), group.gpu
    spot = SPOT_PREFIX if group.provisioning is Provisioning.SPOT else ""
    amounts: dict[str, float] = {"SSD_TOTAL_GB": group.disk.size_gib}
    series = group.machine_type.partition("-")[0]
    if size is not None and series != "a3" and not spot:
        amounts[CPU_QUOTAS.get(series, "CPUS")] = size.vcpus
    if gpu is not None:
        added = attachable(gpu.product)
        row = added[1] if added is not None else size and size.built_in
        if row:
            amounts[f"{spot}{row.quota}"] = gpu.count
        amounts[ALL_GPUS] = gpu.count
    if public_address:
        amounts["IN_USE_ADDRESSES"] = 1
    return amounts
