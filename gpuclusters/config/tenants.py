"""`tenants`, `storage`, `leases`: who shares the cluster, what each gets, and how GPUs change hands."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from gpuclusters.config.hosts import User
from gpuclusters.config.kubernetes import Chart
from gpuclusters.container_api import image
from gpuclusters.core.section import (
    Address,
    Count,
    DnsLabel,
    Flag,
    Gib,
    Integer,
    Network,
    Seconds,
    Section,
    Text,
    matches,
    refusal,
)
from gpuclusters.lease.model import RecyclePolicy
from gpuclusters.tenancy.model import AccessMode, Mounter
from gpuclusters.tenancy.on_demand import PLACEHOLDER


class NfsVolume(Section):
    """A folder that is mounted on the machines and shared with the tenant's VMs."""

    name: DnsLabel
    """Name of its claim in the tenant's namespace."""
    server: Address
    """Address of the file server, one of the tenant's nfs.servers."""
    path: Annotated[Text, matches(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._+@=-]+)+", "exported-folder")]
    """The folder as the server exports it."""
    size_gib: Gib
    """What the claim counts in the tenant's quota; NFS itself limits nothing."""
    mode: AccessMode = AccessMode.READ_WRITE_MANY
    """read-write-many or read-only-many."""


class Storage(Section):
    """NFS for tenants."""

    mounter: Mounter = Mounter.KUBELET
    """kubelet: its own NFS volumes, with mount.nfs of the machine. csi: csi-driver-nfs, which is then
    installed."""
    csi_driver_version: Text = "4.13.5"
    """Version of the chart csi-driver-nfs."""
    csi_driver_chart: Chart | None = None
    """Where its chart comes from; by default the lab's in the lab, else the project's own repository."""


class NfsMount(StrEnum):
    """Who mounts a tenant's NFS volumes."""

    GUEST = "guest"
    """The container in its VM; its traffic is the pod's and passes the tenant's network policy."""
    KUBELET = "kubelet"
    """The kubelet on the machine, as a PersistentVolume; only the Go shim keeps such files live."""


Fqdn = Annotated[
    Text,
    matches(r"[A-Za-z0-9_*-]+(\.[A-Za-z0-9_*-]+)*\.?", "fqdn"),
    # A star in the last part, or nothing but stars before it.
    matches(r"(?!(.*\.)?[^.]*\*[^.]*\.?$)(?!(\*+\.)+[^.]+\.?$).*", "wide-fqdn"),
]


class Egress(Section):
    """Where a tenant's pods may connect to, beside each other and DNS, which always work."""

    internet: Flag = False
    """Every public address; never private ranges, metadata services or the cluster's machines."""
    fqdns: tuple[Fqdn, ...] = ()
    """Host names, for HTTPS; `*` stands for characters of one part of a name, `**.` in front for one or more
    parts, from Cilium 1.19 on."""
    api_server: Flag = False
    """The Kubernetes API."""


class Nfs(Section):
    """File servers of a tenant."""

    servers: tuple[Network, ...] = Field(min_length=1)
    """Their addresses, within network.storage-cidrs."""
    mounted_by: NfsMount = NfsMount.GUEST
    """guest or kubelet."""
    volumes: tuple[NfsVolume, ...] = ()
    """Folders that become claims in the tenant's namespace; with mounted-by: kubelet."""


class ContainerSize(Section):
    """CPU, memory and disk of one container."""

    cpu: Count
    """Cores."""
    memory_gib: Gib
    """RAM, in GiB."""
    disk_gib: Gib | None = None
    """Local disk that is gone with the container, its log included, in GiB; 16 for default-container, and all
    of the tenant's disk-gib for max-container, unless stated."""


_NO_GLIBC = re.compile(r"(^|[/:_.-])(alpine|musl|distroless|busybox|chainguard|wolfi)([/:_.@*-]|$)")


def _source(value: str) -> str:
    if found := _NO_GLIBC.search(value):
        raise refusal("image-without-glibc", what=found.group(2))
    if re.fullmatch(image.SOURCE, value):
        return value
    if "*" in value:
        raise refusal("source-wildcard")
    if "@" in value or ":" in value.rpartition("/")[2]:
        raise refusal("source-of-one-image")
    raise refusal("image-source")


ImageSource = Annotated[Text, AfterValidator(_source)]
Registry = Annotated[Text, matches("[^/]*", "registry"), AfterValidator(_source)]


class ImageSources(Section):
    """Where a tenant's images come from. The machines pull them, from their own network."""

    allowed: tuple[ImageSource, ...] = Field(default=(), max_length=64)
    """Registries, and paths at registries, with everything below: nvcr.io/nvidia,
    registry.example.com:5000/acme. Without a list every registry with a name of the public DNS; an address,
    localhost or a local name is contacted only if it is listed. Not musl or distroless images: NVIDIA's
    hooks in the guest need glibc and a shell."""


class Images(ImageSources):
    """Where a tenant's images come from. The machines pull them, from their own network."""

    registry_auth: tuple[Registry, ...] = ()
    """Registries that want a password; the secret `gpu-clusters:tenant-registry-credentials` has it for each,
    by tenant. No other tenant pulls with it."""


Quantity = Annotated[
    Text, matches(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?", "quantity")
]


class Allowance(Section):
    """What a tenant may hold and reach."""

    gpus: Count
    """How many GPUs it may hold at once, over the whole cluster."""
    cpu: Count | None = None
    """Cores it may hold, VMs' overhead included; by default 24 for each GPU."""
    memory_gib: Gib | None = None
    """RAM it may hold in GiB, VMs' overhead included; by default 192 for each GPU."""
    disk_gib: Gib | None = None
    """Local disk of the machines that its containers may fill, in GiB; by default 128 for each GPU. Images do
    not count."""
    sizes: tuple[Annotated[Integer, Field(ge=1, le=64)], ...] | None = None
    """Numbers of GPUs that one container may ask for; by default what the layouts offer."""
    default_container: ContainerSize = Field(
        default_factory=lambda: ContainerSize.model_validate({"cpu": 8, "memory-gib": 64})
    )
    """What a container gets that states no limits."""
    max_container: ContainerSize | None = None
    """The most that one container may ask for; by default the quota less one VM's overhead."""
    extra_quota: Mapping[Text, Quantity] = Field(default_factory=dict)
    """More entries of the ResourceQuota, for example `count/configmaps: "100"`."""
    egress: Egress = Field(default_factory=Egress)
    """Where its pods may connect to."""
    images: ImageSources = Field(default_factory=ImageSources)
    """Where its images come from."""


class TenantsOnDemand(Allowance):
    """Tenants who have a valid token and no tenancy get one of these at their first request."""

    most: Count
    """How many such tenancies there are at most."""

    def as_tenant(self) -> "Tenant":
        """One of them, without its name."""
        own = {key: getattr(self, key) for key in Allowance.model_fields if key != "images"}
        images = Images.model_construct(allowed=self.images.allowed)
        return Tenant.model_construct(name=PLACEHOLDER, images=images, **own)


class Tenant(Allowance):
    """One tenant: a namespace of its own, a quota, and policies that let nobody else in."""

    name: DnsLabel
    """Name of the tenant."""
    namespace: DnsLabel | None = None
    """Its namespace; by default tenant-namespace-prefix and the name."""
    storage_gib: Gib = 1024
    """Sum of its volume claims, in GiB; there are as many claims as nfs.volumes."""
    nfs: Nfs | None = None
    """Its file servers."""
    images: Images = Field(default_factory=Images)
    """Where its images come from."""

    @property
    def volumes(self) -> tuple[NfsVolume, ...]:
        """Its folders on file servers that become claims."""
        return self.nfs.volumes if self.nfs else ()


class Knobs(Section):
    """Switches that survive a reset in the GPU's own memory; a tenant with root in its VM can turn them."""

    ecc: Flag = True
    """Error correction of the GPU's memory."""
    mig: Flag = False
    """Multi-Instance GPU mode."""
    cc: Flag = False
    """Confidential computing mode."""
    ppcie: Flag = False
    """Protected PCIe mode."""


class GoldenFirmware(Section):
    """What a GPU must be like before the next tenant gets it; anything else is quarantined."""

    versions: Mapping[Text, Annotated[tuple[Text, ...], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    """Accepted versions by prefix of the item's id in the BMC's firmware inventory, for example
    `HGX_FW_GPU: ["96.00.A5.00.01"]`. Ids vary by BMC release, so prefixes are compared. Items of the GPU
    in question are those that end with its number; all others hold for the whole machine."""
    knobs: Knobs = Field(default_factory=Knobs)
    """Switches, as the tool on the machine reads them."""


class Deadlines(Section):
    """The longest that each phase may last; afterwards the GPU is quarantined, or its pod deleted."""

    reserved_seconds: Seconds = 60
    """Until the partition's activation begins."""
    activating_seconds: Seconds = 120
    """Activation of the partition."""
    admission_seconds: Seconds = 180
    """From the lease to the kubelet's allocation; afterwards the pod is deleted and the lease returned."""
    releasing_seconds: Annotated[Integer, Field(ge=60, le=86_400)] = 600
    """Until the VM has let go of the GPU and its partition is inactive. At least twice the 30 seconds that a
    pod has to end by itself."""
    resetting_seconds: Seconds = 180
    """Reset of the GPU."""
    scrubbing_seconds: Seconds = 900
    """Clearing of its memory."""
    verifying_seconds: Seconds = 180
    """Comparison with the golden set."""


class Leases(Section):
    """Hand-over of GPUs between tenants."""

    user: User | None = None
    """Account on the machines that the controllers log in as, with the secret
    `gpu-clusters:controller-ssh-private-key`; none: hosts.user. One of its own needs only the
    rules for sudo of docs/caas-hosts.md."""
    recycle_policy: RecyclePolicy = RecyclePolicy.FULL
    """full: reset, clear, compare firmware. reset-only: reset, clear. quarantine-always: reset, clear, then
    wait for an operator."""
    golden_firmware: GoldenFirmware = Field(default_factory=GoldenFirmware)
    """What `full` compares with. The lab knows what its machines have; existing machines need it stated."""
    deadlines: Deadlines = Field(default_factory=Deadlines)
    """Time limits."""
