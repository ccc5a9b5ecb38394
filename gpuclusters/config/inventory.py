"""Where the machines are: from the configuration, or from the inventory of a running lab."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.kubernetes import Rke2Kubernetes
from gpuclusters.config.nodes import Bmc
from gpuclusters.core.naming import kebab

LAB_FOLDER_VARIABLE = "GPU_CLUSTERS_LAB"
LAB_FOLDER = ".lab"
INVENTORY = "inventory.json"
_VERSION = 3
_START = "run `make up` or `gpu-clusters lab start`"


class InventoryError(Exception):
    """The lab's inventory is there and cannot be used; the message says why and what to do."""

    error_id = "lab.inventory"


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, alias_generator=kebab, validate_by_alias=True, validate_by_name=True
    )


class ResolvedHost(_Part):
    """One machine as SSH reaches it, and its management controller if it is known."""

    name: str
    address: str
    port: int
    user: str
    host_key: str
    bmc: Bmc | None = None


class IssuerKeys(_Part):
    """Where programs in the cluster fetch the keys of the lab's issuer, if not at its own address."""

    url: str
    ca_certificate: str
    """PEM of the authority that signed the certificate shown there."""


def _named(hosts: Any) -> Any:
    return {name: {**host, "name": name} for name, host in hosts.items()}


class Inventory(_Part):
    version: Literal[3]
    name: str
    kubeconfig: Path
    ssh_private_key: Path
    bmc_password: Path
    issuer: str
    """OpenID issuer of the lab."""
    api_certificate: Path = Field(validation_alias=AliasPath("api", "certificate"))
    """What the API of a `caas` cluster shows."""
    api_private_key: Path = Field(validation_alias=AliasPath("api", "private-key"))
    golden_firmware: Mapping[str, tuple[str, ...]]
    """Versions that the simulated machines were made with, by prefix of the inventory item."""
    hosts: Annotated[Mapping[str, ResolvedHost], BeforeValidator(_named)]
    issuer_keys: IssuerKeys | None = None
    """None where programs reach the issuer by its name: they run on this machine itself."""


def lab_folder(project: Path) -> Path:
    """The lab's folder: GPU_CLUSTERS_LAB, else `.lab` in the project."""
    stated = os.environ.get(LAB_FOLDER_VARIABLE)
    return Path(stated) if stated else project / LAB_FOLDER


def read_inventory(folder: Path) -> Inventory | None:
    """The inventory of the lab in a folder; None if none runs there, `InventoryError` if it is none."""
    path = folder / INVENTORY
    try:
        return Inventory.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InventoryError(f"{path} cannot be read: {error}; {_START} again") from error
    except (ValidationError, AttributeError, TypeError) as error:
        why = str(error)
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False)[0]
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
        problem = f"{path} is not a lab inventory of version {_VERSION} ({why}); {_START} again"
        raise InventoryError(problem) from error


def resolve_machines(
    names: Sequence[str], hosts: ExistingHosts | LabHosts, inventory: Inventory | None
) -> dict[str, ResolvedHost | None]:
    """Machines by name; None for those of a lab that does not run, `InventoryError` if it lacks one."""
    if isinstance(hosts, ExistingHosts):
        known = {
            machine.name: ResolvedHost(user=hosts.user, **machine.model_dump())
            for machine in hosts.machines
        }
        return {name: known[name] for name in names if name in known}
    if inventory is None:
        return dict.fromkeys(names)
    missing = [name for name in names if name not in inventory.hosts]
    if missing:
        raise InventoryError(
            f"the lab runs {', '.join(sorted(inventory.hosts)) or 'no host'} and not "
            f"{', '.join(missing)}; {_START} so that it starts what the configuration names"
        )
    return {name: inventory.hosts[name] for name in names}


def resolve_hosts(
    config: CaasConfig, inventory: Inventory | None
) -> dict[str, ResolvedHost | None]:
    """The machine of each node, with its management controller; errors as of `resolve_machines`."""
    found = resolve_machines([node.name for node in config.nodes], config.hosts, inventory)
    for node in config.nodes:
        if node.bmc is not None and (host := found[node.name]) is not None:
            found[node.name] = host.model_copy(update={"bmc": node.bmc})
    return found


def resolve_servers(
    config: CaasConfig, inventory: Inventory | None
) -> dict[str, ResolvedHost | None]:
    """The machines of the servers of a cluster that the stack makes; errors as of `resolve_machines`."""
    if not isinstance(config.kubernetes, Rke2Kubernetes):
        return {}
    servers = config.kubernetes.servers
    found = resolve_machines([server.name for server in servers], config.hosts, inventory)
    if isinstance(config.hosts, ExistingHosts):
        for server in servers:
            if server.name not in found:
                reached = server.model_dump(include={"name", "address", "port", "host_key"})
                found[server.name] = ResolvedHost(user=config.hosts.user, **reached)
    return found
