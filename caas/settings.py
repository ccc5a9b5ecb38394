"""What the programs inside a cluster are told: one YAML file, written by the stack, read at start.

It holds no secret: `ssh-private-key` and `bmc-password` are files in the folder `GPU_CLUSTERS_SECRETS`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, IPvAnyNetwork, ValidationError

from caas import logs
from gpuclusters.core.custom_resource import Part
from gpuclusters.fabric.table import Baseboard, Partition, PartitionTable, table_for
from gpuclusters.lease.board import Limits
from gpuclusters.lease.firmware import Golden
from gpuclusters.lease.model import RecyclePolicy
from gpuclusters.tenancy import programs
from gpuclusters.tenancy.isolation import Network
from gpuclusters.tenancy.on_demand import OnDemand

SETTINGS_VARIABLE = "GPU_CLUSTERS_SETTINGS"
SECRETS_VARIABLE = "GPU_CLUSTERS_SECRETS"


class SettingsError(ValueError):
    """The settings cannot be used; the message names the file and every fault."""


class Gpu(Part):
    """One GPU of a host."""

    module: Annotated[int, Field(ge=1, le=64)]
    """Number of its slot on the baseboard; not the order on the PCI bus."""
    pci: str
    device: str
    """Name of its CDI device, which is also the kubelet's id of it."""


class Bmc(Part):
    """Where a host's management controller answers Redfish."""

    url: str
    user: str
    certificate: str | None = None
    """PEM of the certificate that it must show; None trusts the system's authorities."""


class Host(Part):
    """One machine with GPUs, reached over SSH with a pinned key."""

    name: str
    address: str
    port: int = 22
    user: str
    host_key: str
    baseboard: Baseboard
    table: Mapping[int, tuple[int, ...]] | None = None
    """The board's own partition table, modules by number, where that of the baseboard is not known."""
    gpus: tuple[Gpu, ...]
    partitions: tuple[int, ...]
    """Numbers of the partitions that may be leased: those of the declared layout, or all of the table."""
    declared_layout: bool = True
    """Whether free partitions stay active, as the stack declares them; else activity follows leases."""
    fabric_manager: str
    """Address of the fabric manager's API as seen from the machine."""
    bmc: Bmc | None = None

    @property
    def offered(self) -> tuple[Partition, ...]:
        return tuple(self.partition_table.partition(number) for number in self.partitions)

    @property
    def partition_table(self) -> PartitionTable:
        return table_for(self.baseboard, self.table)


class Api(Part):
    """The public API."""

    issuer: str
    """`iss` of tokens that are accepted."""
    audience: str = "gpu-clusters"
    jwks_url: str | None = None
    """Where the issuer's keys are; by default its OpenID configuration says so."""
    ca_certificate: str | None = None
    """PEM of the authority of the issuer's TLS certificate, if it is a private one."""
    tenant_claim: str = "tenant"
    operator_group: Annotated[str, Field(min_length=1)] | None = None
    """Value of the claim `groups` that makes an operator of who bears the token; None: nobody is one."""
    requests_per_second: Annotated[float, Field(gt=0)] = 20
    """Rate limit per tenant."""
    burst: Annotated[int, Field(ge=1)] = 40
    max_body_bytes: Annotated[int, Field(ge=1024)] = 65_536
    max_containers: Annotated[int, Field(ge=1)] = 100
    """Containers of one tenant that exist at once, waiting ones included."""
    connections_per_address: Annotated[int, Field(ge=1)] = 64
    """Connections of one client's address that are open at once."""
    proxies: tuple[IPvAnyNetwork, ...] = ()
    """Networks of the proxies before the API, whose X-Forwarded-For is believed."""


class Settings(Part):
    """All of it."""

    cluster: str
    namespace: str = programs.BASE
    """Where the API lives; the other programs' namespaces are named after it."""
    gpu_resource: str = "nvidia.com/pgpu"
    huge_pages: bool = False
    """Whether the memory of VMs is of 1-GiB pages, which pods then ask for."""
    cdi_kind: str = "nvidia.com/pgpu"
    runtime_class: str
    recycle_policy: RecyclePolicy = RecyclePolicy.FULL
    phases: Limits = Limits()
    start_deadline_seconds: Annotated[float, Field(gt=0, le=86_400)] = 1380
    """How long a pod with GPUs may take until its container runs; by default from Kata's own timeouts."""
    hosts: tuple[Host, ...]
    golden_firmware: Golden = Golden()
    network: Network = Network()
    on_demand: OnDemand | None = None
    """What tenants get who have no tenancy; None: nothing."""
    api: Api

    @property
    def accounts(self) -> programs.Accounts:
        """Namespace and account of each program."""
        return programs.Accounts(self.namespace)


def load(path: Path | None = None) -> Settings:
    """Read the file that the environment names; `SettingsError` with every fault."""
    if path is None:
        named = os.environ.get(SETTINGS_VARIABLE)
        if not named:
            raise SettingsError(f"{SETTINGS_VARIABLE} must name the settings file")
        path = Path(named)
    try:
        return Settings.model_validate(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{path} is not YAML: {error}") from error
    except ValidationError as error:
        faults = "\n".join(
            f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)
        )
        raise SettingsError(faults) from error


def secret(name: str) -> str:
    """A secret's content, which from now on is blotted out of the log; `SettingsError` if it is not there."""
    folder = os.environ.get(SECRETS_VARIABLE)
    if not folder:
        raise SettingsError(f"{SECRETS_VARIABLE} must name the folder of the secrets")
    try:
        value = (Path(folder) / name).read_text().rstrip("\n")
    except OSError as error:
        raise SettingsError(f"the secret {name} cannot be read: {error.strerror}") from error
    logs.hide(value)
    return value
