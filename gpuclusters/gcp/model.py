"""One machine on Google Cloud as it is asked for, as the Compute API is told, and as it answers.

Source: Compute Engine API v1, `instances` (scheduling, guestAccelerators, shieldedInstanceConfig, metadata).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field

from gpuclusters.core import scripts
from gpuclusters.core.model import Strict, matches
from gpuclusters.gcp.firewall_rules import Allowed
from gpuclusters.gcp.machine_types import Provisioning

OWNER_LABEL = "gpu-clusters-owner"
"""Says which stack made a machine, so that one that is there already is known for what it is."""
USER_DATA = "user-data"
"""The metadata key that cloud-init reads. What is in it, any process on the machine can ask for."""
SETTINGS = {
    # OS Login would ignore the keys given here, and its accounts have no range of subordinate ids, so that
    # a rootless engine silently becomes a rootful one.
    "enable-oslogin": "FALSE",
    "block-project-ssh-keys": "TRUE",
    "serial-port-enable": "FALSE",
    "disable-legacy-endpoints": "TRUE",
}

UNUSED_KEYS = ("accessToken", "credentials", "externalCredentials")
"""Credentials in the stack's configuration: Pulumi's provider would act as another account than we."""

_NAT = {"type": "ONE_TO_ONE_NAT", "name": "External NAT"}
_RESOURCE = matches(
    r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?",
    "write at most 63 lower-case letters, digits and '-', with a letter first",
)
_ZONE = matches(r"[a-z]+-[a-z]+[0-9]+-[a-z]", "write a zone like us-central1-a")


class Accelerator(Strict):
    type: Annotated[str, matches(r"nvidia-[a-z0-9-]+", "write a type like nvidia-tesla-v100")]
    count: Annotated[int, Field(ge=1, le=16)]


class BootDisk(Strict):
    """The disk that a machine starts from. It goes with the machine."""

    image: str
    """Path of the image or of its family, from `projects/` on."""
    size_gib: Annotated[int, Field(ge=10, le=65_536)]
    type: str = "pd-balanced"


class GoogleAccess(Strict):
    """What the stack's configuration says of how Google Cloud is reached."""

    endpoint: str = ""
    impersonate: str = ""
    refused: tuple[str, ...] = ()
    """Keys with credentials of the stack, which would be another account than ours."""

    @classmethod
    def of(cls, stated: Callable[[str], str | None]) -> Self:
        """By the keys of the stack's `gcp` configuration."""
        return cls(
            endpoint=stated("computeCustomEndpoint") or "",
            impersonate=stated("impersonateServiceAccount") or "",
            refused=tuple(f"gcp:{key}" for key in UNUSED_KEYS if stated(key)),
        )


class GcpMachineInputs(Strict):
    project: str
    zones: Annotated[tuple[Annotated[str, _ZONE], ...], Field(min_length=1)]
    """Tried in this order when the machine is made; it then stays where it is."""
    name: Annotated[str, _RESOURCE]
    owner: Annotated[str, matches(r"[a-z0-9_-]{1,63}", "write at most 63 of a-z, 0-9, '-' and '_'")]
    machine_type: str
    accelerator: Accelerator | None = None
    gpus: Annotated[int, Field(ge=0, le=16)] = 0
    """Added or built in: with any, the machine cannot be moved while it runs."""
    provisioning: Provisioning = Provisioning.STANDARD
    disk: BootDisk
    subnetwork: str
    """Path of the subnet, from `projects/` on."""
    public_address: bool = False
    tags: tuple[Annotated[str, _RESOURCE], ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    service_account: str
    """Address of the account that the machine acts as."""
    scopes: tuple[str, ...] = ()
    user_data: str = Field(repr=False)
    """For cloud-init; holds the machine's host key, and is secret."""
    google: GoogleAccess = GoogleAccess()
    deletion_protection: bool = False
    create_timeout_seconds: Annotated[int, Field(ge=30, le=3600)] = 600
    """For one zone to make the machine and start it."""

    @property
    def natural_id(self) -> str:
        """Names on Google Cloud are unique in a zone; those of one project here are in all of them."""
        return f"{self.project}/{self.name}"

    @property
    def all_labels(self) -> dict[str, str]:
        return {**self.labels, OWNER_LABEL: self.owner}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """The machines of a cluster, and what they have in common."""

    project: str
    region: str
    cluster: str
    """Begins the names of network, rules and account; the machines carry it as their network tag."""
    owner: str
    """The stack, as the machines' label says it."""
    network: Mapping[str, Any] | None
    """`cidr` and `mtu` of one of the cluster's own; None: somebody else's."""
    network_project: str
    network_path: str
    """From `projects/` on."""
    ssh_sources: Sequence[str]
    between_nodes: Sequence[Allowed]
    """What the cluster type needs from node to node. Google lets nothing in that no rule names."""
    account_id: str
    """The account's name before the @: 6 to 30 characters."""
    roles: Sequence[str]
    """Of the account in the project."""
    machines: Mapping[str, Mapping[str, Any]]
    """Inputs of each `GcpMachine` by host, but for its account and its boot data."""
    needs: dict[str, dict[str, float]]
    """What each counts for in quotas, by its name on Google Cloud and metric."""
    user: str
    authorized_keys: Sequence[str]
    through_iap: bool
    """Whether SSH goes through Identity-Aware Proxy, and not to addresses."""
    protect: Collection[str] = ()
    """Hosts whose machine Pulumi refuses to delete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GkePlan:
    """A managed cluster with its network and account."""

    project: str
    region: str
    cluster: str
    """Its name, and that of its network."""
    owner: str
    """The stack, as the label of the nodes says it."""
    network: Mapping[str, Any]
    """`cidr` and `mtu`, and `secondary`: the ranges of `pods` and `services`."""
    account_id: str
    roles: Sequence[str]
    arguments: Mapping[str, Any]
    """Of the cluster, as pulumi-gcp takes them, but what is the same for all."""
    pools: Mapping[str, Mapping[str, Any]]
    """The same of each node pool, but the account of its nodes."""
    needs: dict[str, dict[str, float]]
    """What each node counts for in quotas, by metric."""
    protect: bool


def body(machine: GcpMachineInputs, zone: str) -> dict[str, Any]:
    """What `instances.insert` is sent for a zone."""
    spot, added, disk = machine.provisioning is Provisioning.SPOT, machine.accelerator, machine.disk
    kind = f"zones/{zone}/acceleratorTypes/{added.type}" if added else ""
    metadata = {**SETTINGS, USER_DATA: machine.user_data}
    words = machine.model_dump() | {
        "zone": zone,
        "labels": machine.all_labels,
        "tags": list(machine.tags),
        "maintenance": "TERMINATE" if machine.gpus or spot else "MIGRATE",
        "spot": spot,
        "standard": not spot,
        "provisioning": "SPOT" if spot else "STANDARD",
        "spot_ends": "STOP" if spot else None,
        "image": disk.image,
        "size_gib": str(disk.size_gib),
        "disk_type": disk.type,
        "public": [_NAT] if machine.public_address else None,
        # The only one that A3 has.
        "nic": "GVNIC" if machine.machine_type.startswith("a3-") else None,
        "scopes": [f"https://www.googleapis.com/auth/{scope}" for scope in machine.scopes],
        "metadata": [{"key": key, "value": value} for key, value in metadata.items()],
        "secure_boot": machine.gpus == 0,
        "accelerators": [{"acceleratorType": kind, "acceleratorCount": added.count}]
        if added
        else None,
    }
    return dict(scripts.manifest("gcp/instance.yaml", words))


class Refused(StrEnum):
    """Why a zone did not make or start a machine."""

    STOCK = "stock"
    """It has no such machine left at the moment."""
    QUOTA = "quota"
    """The project may not have more of it."""
    UNKNOWN_TYPE = "unknown-type"
    """It does not have such machines or GPUs at all."""
    OTHER = "other"
    """The machine itself is not right; another zone would say the same."""


STOCK_CODES = (
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    "STOCKOUT",
)
QUOTA_CODES = ("QUOTA_EXCEEDED", "quotaExceeded", "LIMIT_EXCEEDED")
UNKNOWN_CODES = ("notFound", "RESOURCE_NOT_FOUND", "UNSUPPORTED_OPERATION", "invalid")


class ApiError(Exception):
    """The API said no, to a call or at the end of an operation; who asked knows what it means there."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code, message)
        self.status, self.code, self.message = status, code, message

    @property
    def kind(self) -> Refused:
        """What it means for the choice of a zone."""
        if self.code in STOCK_CODES or "does not have enough resources available" in self.message:
            return Refused.STOCK
        if self.code in QUOTA_CODES:
            return Refused.QUOTA
        about_type = "acceleratorTypes/" in self.message or "machineTypes/" in self.message
        return Refused.UNKNOWN_TYPE if self.code in UNKNOWN_CODES and about_type else Refused.OTHER

    @property
    def reason(self) -> str:
        """In the API's words; the code too where it means nothing to us."""
        return f"{self.code}: {self.message}" if self.kind is Refused.OTHER else self.message


_LastPart = Annotated[str, BeforeValidator(lambda path: path.rpartition("/")[2])]
_INTERFACE = ("networkInterfaces", 0)


class Instance(BaseModel):
    """A machine as the API shows it."""

    model_config = ConfigDict(frozen=True)

    name: str
    zone: _LastPart
    status: str
    """PROVISIONING, STAGING, RUNNING, STOPPING, SUSPENDED, TERMINATED, …"""
    instance_id: str = Field("", validation_alias="id")
    address: str = Field("", validation_alias=AliasPath(*_INTERFACE, "networkIP"))
    """Within the network."""
    public_address: str = Field(
        "", validation_alias=AliasPath(*_INTERFACE, "accessConfigs", 0, "natIP")
    )
    labels: Mapping[str, str] = {}
    label_fingerprint: str = Field("", validation_alias="labelFingerprint")
    tags: tuple[str, ...] = Field((), validation_alias=AliasPath("tags", "items"))
    tag_fingerprint: str = Field("", validation_alias=AliasPath("tags", "fingerprint"))
    deletion_protection: bool = Field(default=False, validation_alias="deletionProtection")
    machine_type: _LastPart = Field("", validation_alias="machineType")


@dataclass(frozen=True, slots=True)
class Quota:
    """How much a project may have of something, and how much it has."""

    limit: float
    usage: float

    @property
    def free(self) -> float:
        return self.limit - self.usage
