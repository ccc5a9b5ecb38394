"""From `hosts` with `source: gcp` to the machines as they are asked for. Pure; no value of Pulumi in it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuclusters.config.gcp import (
    ExistingNetwork,
    GcpGroup,
    GcpHosts,
    IapAccess,
    PinnedImage,
    RangeAccess,
    instance_name,
)
from gpuclusters.gcp import placement
from gpuclusters.gcp.machine_types import attachable

IAP_RANGE = "35.235.240.0/20"
"""Where IAP's tunnels come from; source: cloud.google.com/iap/docs/using-tcp-forwarding."""
LONGEST_ACCOUNT = 30
_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMachine:
    """One machine."""

    name: str
    """In the configuration, and of its node."""
    inputs: dict[str, Any]
    """Of the resource `GcpMachine`, but for its account and its boot data."""
    needs: dict[str, float]
    """What it counts for in quotas."""


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


def network_project(hosts: GcpHosts) -> str:
    """The project that has the network, and so its firewall."""
    network = hosts.network
    return (isinstance(network, ExistingNetwork) and network.project) or hosts.project


def network_path(hosts: GcpHosts, cluster: str) -> str:
    """The network, from `projects/` on."""
    network = hosts.network
    name = network.network if isinstance(network, ExistingNetwork) else cluster
    return f"projects/{network_project(hosts)}/global/networks/{name}"


def subnetwork_path(hosts: GcpHosts, cluster: str) -> str:
    """The subnet, from `projects/` on."""
    network = hosts.network
    name = network.subnetwork if isinstance(network, ExistingNetwork) else cluster
    return f"projects/{network_project(hosts)}/regions/{hosts.region}/subnetworks/{name}"


def image_path(hosts: GcpHosts) -> str:
    """The image or its family, from `projects/` on."""
    image = hosts.image
    kind = image.name if isinstance(image, PinnedImage) else f"family/{image.family}"
    return f"projects/{image.project}/global/images/{kind}"


def ssh_sources(hosts: GcpHosts) -> tuple[str, ...]:
    """Ranges that may open a connection to port 22."""
    if isinstance(hosts.access, IapAccess):
        return (IAP_RANGE,)
    return tuple(str(network) for network in hosts.access.ranges)


def machines(hosts: GcpHosts, *, cluster: str, owner: str) -> Sequence[PlannedMachine]:
    """All machines, in the order of the configuration."""
    return [
        _machine(hosts, group, name, cluster, owner)
        for group in hosts.groups
        for name in group.machines
    ]


def _machine(
    hosts: GcpHosts, group: GcpGroup, name: str, cluster: str, owner: str
) -> PlannedMachine:
    public = isinstance(hosts.access, RangeAccess) and hosts.access.public_addresses
    added = attachable(group.gpu.product) if group.gpu else None
    inputs: dict[str, Any] = {
        "project": hosts.project,
        "zones": list(hosts.zones),
        "name": instance_name(cluster, name),
        "owner": owner,
        "machine_type": group.machine_type,
        "gpus": group.gpu.count if group.gpu else 0,
        "provisioning": group.provisioning.value,
        "disk": {
            "image": image_path(hosts),
            "size_gib": group.disk.size_gib,
            "type": group.disk.type,
        },
        "subnetwork": subnetwork_path(hosts, cluster),
        "public_address": public,
        "tags": [cluster],
        "labels": {
            **hosts.labels,
            "gpu-clusters-cluster": cluster,
            "gpu-clusters-role": group.role,
        },
        "scopes": list(hosts.service_account.scopes),
        "deletion_protection": hosts.deletion_protection,
    }
    if group.gpu and added:
        inputs["accelerator"] = {"type": added[0], "count": group.gpu.count}
    needs = placement.needs(
        group.machine_type,
        product=group.gpu.product if group.gpu else None,
        gpus=group.gpu.count if group.gpu else 0,
        provisioning=group.provisioning,
        disk_gib=group.disk.size_gib,
        public_address=public,
    )
    return PlannedMachine(name=name, inputs=inputs, needs=needs)
