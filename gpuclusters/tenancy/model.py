"""The Tenancy object, and what a tenant may hold: quota and limits.

Source: Kubernetes counts extended resources in a ResourceQuota under `requests.` only; `limits.` or the bare
name are accepted and never enforced.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from gpuclusters.container_api import image
from gpuclusters.core import scripts
from gpuclusters.core.custom_resource import (
    GROUP,
    VERSION,
    Condition,
    Name,
    ObjectName,
    Part,
    definition,
)
from gpuclusters.core.ports import ObjectKind

CPU_PER_GPU = 24
MEMORY_GIB_PER_GPU = 192
DISK_GIB_PER_GPU = 128
"""Shares of a machine with 192 cores, 2 TiB of memory and 1.9 TB of disk that leave room for overhead."""
DISK_GIB_PER_CONTAINER = 16
"""What a container gets that states none."""
HUGE_PAGES = "hugepages-1Gi"
SMALL_PAGES = "1Gi"
"""Ordinary memory that a container requests whose VM is of huge pages: page cache of its image."""


@dataclass(frozen=True, slots=True)
class Size:
    """CPU in cores, memory and local disk in GiB."""

    cpu: int
    memory_gib: int
    disk_gib: int

    def resources(self) -> dict[str, str]:
        return {
            "cpu": str(self.cpu),
            "memory": f"{self.memory_gib}Gi",
            "ephemeral-storage": f"{self.disk_gib}Gi",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one tenant may hold at once, VMs' overhead and `claims` of volumes included."""

    gpus: int
    total: Size
    storage_gib: int
    claims: int
    default_container: Size
    max_container: Size

    def quota(self, resource_name: str, extra: Mapping[str, str]) -> dict[str, str]:
        """`hard` of the ResourceQuota; services that open a door to the outside are not counted, but none."""
        total = self.total.resources()
        return {
            f"requests.{resource_name}": str(self.gpus),
            **{
                f"{of}.{name}": amount
                for name, amount in total.items()
                for of in ("requests", "limits")
            },
            "requests.storage": f"{self.storage_gib}Gi",
            "persistentvolumeclaims": str(self.claims),
            "services.loadbalancers": "0",
            "services.nodeports": "0",
            **extra,
        }

    def limits(self, *, huge_pages: bool = False) -> list[dict[str, Any]]:
        """`limits` of the LimitRange: without defaults a quota refuses every pod that states none."""
        default = self.default_container.resources()
        asked = default
        if huge_pages:
            default = {**default, HUGE_PAGES: default["memory"]}
            asked = {**default, "memory": SMALL_PAGES}
        most = self.max_container.resources()
        return [{"type": "Container", "default": default, "defaultRequest": asked, "max": most}]


def quota_keys(resource_name: str) -> frozenset[str]:
    """The quota entries that this program sets itself."""
    size = Size(1, 1, 1)
    share = Share(
        gpus=1, total=size, storage_gib=1, claims=0, default_container=size, max_container=size
    )
    return frozenset(share.quota(resource_name, {}))


TENANCY = ObjectKind(GROUP, VERSION, "tenancies", "Tenancy", namespaced=False)

FINALIZER = f"{GROUP}/tenancy"
"""Keeps a Tenancy until its namespace is gone."""

PodSecurityLevel = Literal["restricted", "baseline"]
SIZES = (1, 2, 4, 8, 16, 32, 64)
"""How many GPUs the partitions of any baseboard have."""

Quantity = Annotated[str, Field(max_length=32)]
Amounts = Annotated[dict[str, Quantity], Field(max_length=64)]
Cidr = Annotated[str, Field(max_length=43)]


class PodSecurity(Part):
    """Pod Security Admission of the tenant's namespace; `privileged` would be no isolation."""

    enforce: PodSecurityLevel = "restricted"
    audit: PodSecurityLevel = "restricted"
    warn: PodSecurityLevel = "restricted"
    version: Annotated[str, Field(max_length=16, pattern=r"^(latest|v1\.[0-9]+)$")] = "latest"

    def labels(self) -> dict[str, str]:
        """The labels that the namespace must carry."""
        prefix = "pod-security.kubernetes.io"
        levels = {"enforce": self.enforce, "audit": self.audit, "warn": self.warn}
        labels = {f"{prefix}/{mode}": level for mode, level in levels.items()}
        return labels | {f"{prefix}/{mode}-version": self.version for mode in levels}


class Quota(Part):
    """What the tenant may hold at once."""

    name: ObjectName = "tenant"
    hard: Annotated[dict[str, Quantity], Field(min_length=1, max_length=64)]


class Limit(Part):
    """Limits of one container or pod, as in a LimitRange."""

    type: Literal["Container", "Pod"]
    default: Amounts | None = None
    default_request: Amounts | None = None
    max: Amounts | None = None
    min: Amounts | None = None


class Egress(Part):
    """Where the tenant's pods may connect to, beside each other and DNS, which always work."""

    internet: bool = False
    """Every public address; never private ranges, metadata services or the cluster's machines."""
    fqdns: Annotated[
        tuple[Annotated[str, Field(max_length=255, pattern=r"^[-a-zA-Z0-9_.*]+$")], ...],
        Field(max_length=256),
    ] = ()
    """Host names, for HTTPS; `*` stands for characters of one part of a name, `**.` in front for one or more
    parts, from Cilium 1.19 on."""
    nfs_cidrs: Annotated[tuple[Cidr, ...], Field(max_length=64)] = ()
    """File servers that its VMs mount."""
    api_server: bool = False
    """The Kubernetes API."""


class TenancySpec(Part):
    """Who the tenant is, what it may hold and reach. Everything that isolates it is made from this."""

    tenant: Name
    namespace: Name
    gpus: Annotated[int, Field(ge=0, le=4096)] = 0
    gpu_resource: Annotated[str, Field(max_length=253)] = "nvidia.com/pgpu"
    sizes: Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], Field(max_length=7)] = ()
    """How many GPUs one container may ask for."""
    pod_security: PodSecurity = PodSecurity()
    quota: Quota
    limits: Annotated[tuple[Limit, ...], Field(max_length=4)] = ()
    """Without defaults a quota refuses pods that state nothing."""
    egress: Egress = Egress()
    runtime_classes: Annotated[tuple[ObjectName, ...], Field(max_length=16)] = ()
    images: Annotated[
        tuple[Annotated[str, Field(max_length=255, pattern=image.SOURCE)], ...],
        Field(max_length=64),
    ] = ()
    """Registries, and paths at registries, that its images come from; empty for any public registry."""
    pull_secret: bool = False
    """Whether its pods pull with the Secret `registry-credentials` of its namespace."""


class TenancyStatus(Part):
    """What the controller has found enforced, and what it waits for."""

    observed_generation: int | None = None
    namespace_uid: Annotated[str, Field(max_length=64)] | None = None
    """The namespace that was made for the tenant; any other of its name is foreign."""
    awaited_leases: Annotated[tuple[ObjectName, ...], Field(max_length=4096)] = ()
    """GPUs that the deletion waits for: the tenant has them, or had them last and they are not scrubbed."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()


def tenancy_object(spec: TenancySpec) -> dict[str, Any]:
    """The object for server-side apply; it is named after its tenant."""
    labels = {"app.kubernetes.io/managed-by": "gpu-clusters"}
    # The finalizer is there from the first moment, so that what is deleted before anybody has looked at it is
    # cleared up too. The controller puts it on objects that come without.
    named = TENANCY.body(spec.tenant, labels=labels, finalizers=[FINALIZER])
    return named | {"spec": spec.document()}


def crd() -> dict[str, Any]:
    """The CustomResourceDefinition of Tenancy."""
    described = scripts.manifest("tenancy/tenancy.yaml", {"sizes": str(list(SIZES))})
    return definition(TENANCY, described, spec=TenancySpec, status=TenancyStatus)


def docker_config(tenant: str, registries: Sequence[str], credentials: Any) -> str:
    """The `.dockerconfigjson` that a tenant's pods pull with, of all tenants' `credentials` as read.

    `ValueError`, which tells no value, if it has others than these registries, or is no such mapping.
    """
    own = credentials.get(tenant) if isinstance(credentials, Mapping) else None
    if not isinstance(own, Mapping):
        raise ValueError(f"it has nothing for the tenant {tenant}")  # noqa: TRY004 - of what was given
    if missing := ", ".join(sorted(set(registries) - set(own))):
        raise ValueError(f"for the tenant {tenant} it lacks {missing}")
    if spare := ", ".join(sorted(map(str, set(own) - set(registries)))):
        raise ValueError(
            f"for the tenant {tenant} it has {spare}, which images.registry-auth does not"
        )
    auths = {}
    for registry in registries:
        match own[registry]:
            case {"username": str(user), "password": str(password)} if user and password:
                together = base64.b64encode(f"{user}:{password}".encode()).decode()
            case _:
                raise ValueError(
                    f"for {registry} of the tenant {tenant} it needs username and password, as text"
                )
        # Docker's own registry goes by the address that `docker login` writes.
        key = "https://index.docker.io/v1/" if registry == "docker.io" else registry
        auths[key] = {"username": user, "password": password, "auth": together}
    return json.dumps({"auths": auths})


CLAIM = ObjectKind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True)
MOUNT_OPTIONS: Final = ("hard", "nfsvers=4.1", "nosuid", "nodev")
"""`hard`: a server that is away is waited for, instead of writes that are lost; 4.1: one port, 2049, and
sessions; no set-uid programs, no device files of others."""
CSI_DRIVER: Final = "nfs.csi.k8s.io"
"""Name of csi-driver-nfs."""


class AccessMode(StrEnum):
    """What pods may do with a volume."""

    READ_WRITE_MANY = "read-write-many"
    READ_ONLY_MANY = "read-only-many"

    @property
    def kubernetes(self) -> str:
        return {"read-write-many": "ReadWriteMany", "read-only-many": "ReadOnlyMany"}[self.value]


class Mounter(StrEnum):
    """Who in the cluster mounts volumes."""

    KUBELET = "kubelet"
    """The kubelet's own NFS volumes: `mount.nfs` must be on the machines."""
    CSI = "csi"
    """csi-driver-nfs, which brings its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantVolume:
    """One folder of one tenant."""

    tenant: str
    namespace: str
    name: str
    """Of the claim, in the tenant's namespace."""
    server: str
    path: str
    size_gib: int
    mode: AccessMode = AccessMode.READ_WRITE_MANY

    @property
    def volume_name(self) -> str:
        """Of the volume, in the cluster; not the same for two tenants: namespaces are not shared."""
        return f"{self.namespace}.{self.name}"

    def persistent_volume_spec(self, mounter: Mounter) -> dict[str, Any]:
        """`spec` of the PersistentVolume."""
        kind = "csi" if mounter is Mounter.CSI else "nfs"
        source: dict[str, Any] = {"csi": None, "nfs": None, kind: self._said(kind)}
        return self._said("volume", **source)

    def claim_spec(self) -> dict[str, Any]:
        """`spec` of the PersistentVolumeClaim."""
        return self._said("claim")

    def _said(self, part: str, **more: Any) -> dict[str, Any]:
        words = {
            "driver": CSI_DRIVER,
            "mode": self.mode.kubernetes,
            "name": self.name,
            "namespace": self.namespace,
            "options": list(MOUNT_OPTIONS),
            "path": self.path,
            "read_only": self.mode is AccessMode.READ_ONLY_MANY,
            "server": self.server,
            "size": f"{self.size_gib}Gi",
            "volume": self.volume_name,
        }
        return dict(scripts.manifest("tenancy/volumes.yaml", words | more, part))
