"""From `hosts` with `source: gcp` to the machines as they are asked for. Pure; no value of Pulumi in it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuclusters.config.gcp import (
    IAP_RANGE,
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
    network, image, gpu, disk = hosts.network, hosts.image, group.gpu, group.disk
    subnetwork = network.subnetwork if isinstance(network, ExistingNetwork) else cluster
    # The image or the newest of its family.
    source = image.name if isinstance(image, PinnedImage) else f"family/{image.family}"
    gpus = gpu.count if gpu else 0
    added = attachable(gpu.product) if gpu else None
    inputs: dict[str, Any] = {
        "project": hosts.project,
        "zones": list(hosts.zones),
        "name": instance_name(cluster, name),
        "owner": owner,
        "machine_type": group.machine_type,
        "gpus": gpus,
        "provisioning": group.provisioning.value,
        "disk": {
            "image": f"projects/{image.project}/global/images/{source}",
            "size_gib": disk.size_gib,
            "type": disk.type,
        },
        "subnetwork": (
            f"projects/{network_project(hosts)}/regions/{hosts.region}/subnetworks/{subnetwork}"
        ),
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
    if added:
        inputs["accelerator"] = {"type": added[0], "count": gpus}
    needs = placement.needs(
        group.machine_type,
        product=gpu.product if gpu else None,
        gpus=gpus,
        provisioning=group.provisioning,
        disk_gib=disk.size_gib,
        public_address=public,
    )
    return PlannedMachine(name=name, inputs=inputs, needs=needs)
