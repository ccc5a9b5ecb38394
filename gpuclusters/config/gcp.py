"""`hosts` with `source: gcp`: machines that are made on Google Cloud, and what is asked for. Pure."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from gpuclusters.config.hosts import AuthorizedKey, User
from gpuclusters.core.section import (
    DnsLabel,
    Flag,
    Gib,
    Integer,
    Network,
    Section,
    Text,
    holds,
    matches,
    refusal,
)
from gpuclusters.gcp import machine_types
from gpuclusters.gcp.firewall_rules import Allowed
from gpuclusters.gcp.machine_types import Provisioning, attachable, machine_type
from gpuclusters.gcp.model import PoolPlan

System = Literal["ubuntu-22.04", "ubuntu-24.04", "rhel-9", "sles-15"]

_PUBLIC: tuple[tuple[str, re.Pattern[str], System], ...] = (
    ("ubuntu-os-cloud", re.compile(r"ubuntu-(?:minimal-)?2204-.*"), "ubuntu-22.04"),
    ("ubuntu-os-cloud", re.compile(r"ubuntu-(?:minimal-)?2404-.*"), "ubuntu-24.04"),
    ("rhel-cloud", re.compile(r"rhel-9-?.*"), "rhel-9"),
    ("suse-cloud", re.compile(r"sles-15-.*"), "sles-15"),
)


_NAME = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
ImageName = Annotated[Text, matches(_NAME, "image-name")]


class _AnyImage(Section):
    project: ImageName = "ubuntu-os-cloud"
    """Project that has it."""
    system: System | None = None
    """Operating system, where it is not a public image."""


class PinnedImage(_AnyImage):
    """One image, for all machines and for ever."""

    source: Literal["image"]
    """How the image is named."""
    name: ImageName
    """Its name, with its date: ubuntu-2404-noble-amd64-v20260812."""


class ImageFamily(_AnyImage):
    """The newest image of a family when a machine is made; a machine that exists keeps its own."""

    source: Literal["family"]
    """How the image is named."""
    family: ImageName
    """Its family: ubuntu-2404-lts-amd64."""


Image = Annotated[PinnedImage | ImageFamily, Field(discriminator="source")]


def public_system(image: PinnedImage | ImageFamily) -> System | None:
    """The operating system of a public image; None for all others."""
    name = image.name if isinstance(image, PinnedImage) else image.family
    for project, pattern, system in _PUBLIC:
        if image.project == project and pattern.fullmatch(name):
            return system
    return None


IAP_RANGE = "35.235.240.0/20"
"""Where IAP's tunnels come from; source: cloud.google.com/iap/docs/using-tcp-forwarding."""
SCOPES = ("logging.write", "monitoring.write")
"""What a machine may do by default: write its logs and measurements, and nothing else."""


def either(values: Iterable[str], word: str = "or") -> str:
    *others, last = values
    return f"{', '.join(others)} {word} {last}" if others else last


def _machine_type(value: str) -> str:
    if machine_types.machine_type(value) is None:
        near = difflib.get_close_matches(value[:60], machine_types.type_names(), n=3, cutoff=0.5)
        raise refusal("machine-type", near=near or ("n1-standard-8", "e2-standard-4"))
    return value


def _product(value: str) -> str:
    known = machine_types.products()
    if value not in known:
        raise refusal("google-gpu", known=either(known))
    return value


def _range_(value: Any) -> Any:
    if isinstance(value, str) and value.endswith("/0"):
        raise refusal("whole-internet")
    return value


Project = Annotated[
    Text, matches(r"(?:[a-z][a-z0-9.-]{0,60}:)?[a-z][a-z0-9-]{4,28}[a-z0-9]", "project")
]
Zone = Annotated[Text, matches(r"[a-z]+-[a-z]+[0-9]+-[a-z]", "zone")]
MachineType = Annotated[Text, AfterValidator(_machine_type)]
GcpGpuProduct = Annotated[
    Text,
    AfterValidator(_product),
    WithJsonSchema({"type": "string", "enum": list(machine_types.products())}),
]
Scope = Annotated[
    Text,
    AfterValidator(lambda value: value.removeprefix("https://www.googleapis.com/auth/")),
    matches("[a-z][a-z.-]*[a-z]", "scope"),
]
AdminRange = Annotated[Network, BeforeValidator(_range_)]
ResourceName = Annotated[Text, matches(_NAME, "resource-name")]


_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62} [a-z0-9_-]{0,63}")
Labels = Annotated[
    dict[str, str],
    holds(
        lambda value: all(_LABEL.fullmatch(" ".join(one)) for one in value.items()), "google-label"
    ),
]


class OwnNetwork(Section):
    """A network that this program makes, with one subnet, a router and NAT to the outside."""

    source: Literal["own"]
    """Where the network comes from."""
    cidr: Network
    """Range of the subnet. Machines have no address outside of it."""
    mtu: Annotated[Integer, Field(ge=1300, le=8896)] = 1460
    """Bytes of the largest packet. 8896 is the most that Google's network carries."""


class ExistingNetwork(Section):
    """A network that somebody else makes; it must let the machines reach the internet or a mirror."""

    source: Literal["existing"]
    """Where the network comes from."""
    network: ResourceName
    """Name of the network."""
    subnetwork: ResourceName
    """Name of the subnet in the region of the zones."""
    project: Project | None = None
    """Project of the network where it is a shared one; else that of the machines."""
    cidr: Network
    """Range of the subnet: what is let in from node to node."""


class IapAccess(Section):
    """SSH through Google's Identity-Aware Proxy: no machine can be reached from the internet."""

    source: Literal["iap"]
    """How SSH reaches the machines. Needs `gcloud` and the role IAP-secured Tunnel User where it runs."""


class RangeAccess(Section):
    """SSH from addresses of your own, through a VPN, an interconnect or a machine in the network."""

    source: Literal["ranges"]
    """How SSH reaches the machines."""
    ranges: Annotated[tuple[AdminRange, ...], Field(min_length=1)]
    """Where SSH may come from. Never everywhere."""
    public_addresses: Flag = False
    """Whether each machine gets an address on the internet. Without it the ranges are those of a VPN or of
    machines in the network."""


class Disk(Section):
    """The boot disk of a machine."""

    size_gib: Gib = 256
    """Its size."""
    type: Literal["pd-balanced", "pd-ssd"] = "pd-balanced"
    """Its kind. Both go with every machine type here."""


class GcpGpu(Section):
    """The GPUs of each machine of a group."""

    product: GcpGpuProduct
    """Which GPU."""
    count: Annotated[Integer, Field(ge=1, le=16)]
    """How many in each machine."""


class MachineKind(Section):
    """Machines that are alike."""

    machine_type: MachineType
    """vCPUs and memory: n1-standard-8, custom-12-79872, a2-highgpu-8g."""
    gpu: GcpGpu | None = None
    """Their GPUs."""
    provisioning: Provisioning = Provisioning.STANDARD
    """`spot` costs less than half, and Google may take the machine back at any time."""
    disk: Disk = Field(default_factory=lambda: Disk.model_validate({}))
    """The boot disk of each machine."""


class GcpGroup(MachineKind):
    """Machines that are alike."""

    name: DnsLabel
    """Name of the group."""
    role: Literal["controller", "worker"]
    """Whether they run the control plane, or what users start."""
    machines: Annotated[tuple[DnsLabel, ...], Field(min_length=1)]
    """Names of the machines; the nodes of the same names run on them. On Google Cloud the name of the
    cluster and `-` come first."""


class ServiceAccount(Section):
    """What the machines may do on Google Cloud. They get an account of their own, with no role but these."""

    scopes: tuple[Scope, ...] = SCOPES
    """The most that a machine can ask a token for."""
    roles: tuple[Annotated[Text, Field(pattern=r"roles/[A-Za-z0-9.]+")], ...] = (
        "roles/logging.logWriter",
        "roles/monitoring.metricWriter",
    )
    """Roles of the account in the project."""


class GcpHosts(Section):
    """Machines on Google Cloud, made by this program, each in the first zone that has room."""

    source: Literal["gcp"]
    """Where the machines come from."""
    project: Project
    """Id of the project that pays."""
    zones: Annotated[tuple[Zone, ...], Field(min_length=1)]
    """Zones of one region, the preferred one first. A zone that has run out of machines is passed over;
    a machine that exists stays where it is, whatever this list says later."""
    user: User = "ubuntu"
    """Account on each machine, with `sudo` without a password. Its private key is the secret
    `gpu-clusters:ssh-private-key`, else the file named by GPU_CLUSTERS_SSH_KEY_FILE, else what the SSH agent
    holds."""
    authorized_keys: Annotated[tuple[AuthorizedKey, ...], Field(min_length=1)]
    """Public keys that may log in as this account; the one of that private key is among them."""
    image: Image
    """What the boot disks are made from."""
    network: Annotated[OwnNetwork | ExistingNetwork, Field(discriminator="source")]
    """The network of the machines."""
    access: Annotated[IapAccess | RangeAccess, Field(discriminator="source")]
    """How SSH reaches the machines."""
    groups: Annotated[tuple[GcpGroup, ...], Field(min_length=1)]
    """The machines."""
    service_account: ServiceAccount = Field(
        default_factory=lambda: ServiceAccount.model_validate({})
    )
    """What the machines may do on Google Cloud."""
    deletion_protection: Flag = False
    """Whether Google refuses to delete a machine until this is taken back."""
    labels: Labels = Field(default_factory=dict)
    """Labels of all machines, for the bill."""

    @property
    def region(self) -> str:
        return machine_types.region(self.zones[0])

    @property
    def machines(self) -> tuple[str, ...]:
        return tuple(name for group in self.groups for name in group.machines)

    def group_of(self, machine: str) -> GcpGroup | None:
        """The group of a machine; None if there is no such machine."""
        return next((group for group in self.groups if machine in group.machines), None)


def instance_name(cluster: str, machine: str) -> str:
    """Name of a machine on Google Cloud."""
    return f"{cluster}-{machine}"


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
            instance_name(cluster, machine): needs(group, public_address=public)
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


def needs(group: MachineKind, *, public_address: bool) -> dict[str, float]:
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
