"""Where the machines are: from the configuration, or from the inventory of a running lab."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.hosts import ExistingHosts, LabHosts, Machine
from gpuclusters.config.kubernetes import Rke2Kubernetes
from gpuclusters.config.nodes import Node

LAB_FOLDER_VARIABLE = "GPU_CLUSTERS_LAB"
LAB_FOLDER = ".lab"
INVENTORY = "inventory.json"
_VERSION = 3
_START = "run `make up` or `gpu-clusters lab start`"


class InventoryError(Exception):
    """The lab's inventory is there and cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class ResolvedBmc:
    """A machine's management controller as Redfish reaches it."""

    url: str
    user: str
    certificate: str | None


@dataclass(frozen=True, slots=True)
class ResolvedHost:
    """One machine as SSH reaches it, and its management controller if it is known."""

    name: str
    address: str
    port: int
    user: str
    host_key: str
    bmc: ResolvedBmc | None = None


@dataclass(frozen=True, slots=True)
class IssuerKeys:
    """Where programs in the cluster fetch the keys of the lab's issuer, if not at its own address."""

    url: str
    ca_certificate: str
    """PEM of the authority that signed the certificate shown there."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a running lab offers."""

    name: str
    kubeconfig: Path
    ssh_private_key: Path
    bmc_password: Path
    issuer: str
    """OpenID issuer of the lab."""
    api_certificate: Path
    """What the API of a `caas` cluster shows."""
    api_private_key: Path
    golden_firmware: Mapping[str, tuple[str, ...]]
    """Versions that the simulated machines were made with, by prefix of the inventory item."""
    hosts: Mapping[str, ResolvedHost]
    issuer_keys: IssuerKeys | None = None
    """None where programs reach the issuer by its name: they run on this machine itself."""


def lab_folder(project: Path) -> Path:
    """The lab's folder: GPU_CLUSTERS_LAB, else `.lab` in the project."""
    stated = os.environ.get(LAB_FOLDER_VARIABLE)
    return Path(stated) if stated else project / LAB_FOLDER


def read_inventory(folder: Path) -> Inventory | None:
    """The inventory of the lab in a folder, None if no lab is running there.

    A lab writes its inventory last when it starts and removes it first when it stops.

    Raises:
        InventoryError: the file cannot be read or is not an inventory of this version.
    """
    path = folder / INVENTORY
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return _inventory(document)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InventoryError(f"{path} cannot be read: {error}; {_START} again") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InventoryError(
            f"{path} is not a lab inventory of version {_VERSION} ({type(error).__name__}: {error}); "
            f"{_START} again"
        ) from error


def _inventory(document: Any) -> Inventory:
    if document["version"] != _VERSION:
        raise ValueError(f"its version is {document['version']!r}")
    return Inventory(
        name=str(document["name"]),
        kubeconfig=Path(document["kubeconfig"]),
        ssh_private_key=Path(document["ssh-private-key"]),
        bmc_password=Path(document["bmc-password"]),
        issuer=str(document["issuer"]),
        api_certificate=Path(document["api"]["certificate"]),
        api_private_key=Path(document["api"]["private-key"]),
        golden_firmware={
            str(item): tuple(map(str, versions))
            for item, versions in document["golden-firmware"].items()
        },
        hosts={
            name: ResolvedHost(
                name=name,
                address=str(host["address"]),
                port=int(host["port"]),
                user=str(host["user"]),
                host_key=str(host["host-key"]),
                bmc=ResolvedBmc(
                    url=str(host["bmc"]["url"]),
                    user=str(host["bmc"]["user"]),
                    certificate=str(host["bmc"]["certificate"]),
                ),
            )
            for name, host in document["hosts"].items()
        },
        issuer_keys=_issuer_keys(document.get("issuer-keys")),
    )


def _issuer_keys(stated: Any) -> IssuerKeys | None:
    if stated is None:
        return None
    return IssuerKeys(str(stated["url"]), str(stated["ca-certificate"]))


def resolve_hosts(
    config: CaasConfig, inventory: Inventory | None
) -> tuple[ResolvedHost | None, ...]:
    """The machine of each node, in the order of the nodes; None for those of a lab that does not run.

    Raises:
        InventoryError: the lab runs and has no machine for a node.
    """
    if isinstance(config.hosts, ExistingHosts):
        known = {machine.name: machine for machine in config.hosts.machines}
        return tuple(_existing(node, known[node.name], config.hosts.user) for node in config.nodes)
    if inventory is None:
        return tuple(None for _ in config.nodes)
    missing = [node.name for node in config.nodes if node.name not in inventory.hosts]
    if missing:
        raise InventoryError(
            f"the lab runs {', '.join(sorted(inventory.hosts)) or 'no host'} and not "
            f"{', '.join(missing)}; {_START} so that it starts what the configuration names"
        )
    return tuple(inventory.hosts[node.name] for node in config.nodes)


def resolve_servers(
    config: CaasConfig, inventory: Inventory | None
) -> dict[str, ResolvedHost | None]:
    """The machines of the servers of a cluster that the stack makes; None while the lab does not run.

    Raises:
        InventoryError: the lab runs and has no machine for a server.
    """
    if not isinstance(config.kubernetes, Rke2Kubernetes):
        return {}
    found: dict[str, ResolvedHost | None] = {}
    for server in config.kubernetes.servers:
        if isinstance(config.hosts, ExistingHosts):
            known = {machine.name: machine for machine in config.hosts.machines}
            stated = known.get(server.name, server)
            found[server.name] = ResolvedHost(
                name=server.name,
                address=str(stated.address),
                port=stated.port,
                user=config.hosts.user,
                host_key=str(stated.host_key),
            )
        elif inventory is None:
            found[server.name] = None
        elif server.name in inventory.hosts:
            found[server.name] = inventory.hosts[server.name]
        else:
            raise InventoryError(
                f"the lab runs {', '.join(sorted(inventory.hosts)) or 'no host'} and not the server "
                f"{server.name}; {_START} so that it starts what the configuration names"
            )
    return found


def resolve_machines(
    names: Sequence[str], hosts: ExistingHosts | LabHosts, inventory: Inventory | None
) -> dict[str, ResolvedHost | None]:
    """Machines by name; None for those of a lab that does not run.

    Raises:
        InventoryError: the lab runs and lacks one.
    """
    if isinstance(hosts, ExistingHosts):
        return {
            machine.name: ResolvedHost(
                name=machine.name,
                address=machine.address,
                port=machine.port,
                user=hosts.user,
                host_key=machine.host_key,
            )
            for machine in hosts.machines
            if machine.name in names
        }
    if inventory is None:
        return dict.fromkeys(names)
    missing = [name for name in names if name not in inventory.hosts]
    if missing:
        raise InventoryError(
            f"the lab runs {', '.join(sorted(inventory.hosts)) or 'no host'} and not "
            f"{', '.join(missing)}; {_START} so that it starts what the configuration names"
        )
    return {name: inventory.hosts[name] for name in names}


def _existing(node: Node, machine: Machine, user: str) -> ResolvedHost:
    bmc = node.bmc
    return ResolvedHost(
        name=machine.name,
        address=machine.address,
        port=machine.port,
        user=user,
        host_key=machine.host_key,
        bmc=ResolvedBmc(bmc.url, bmc.user, bmc.certificate) if bmc else None,
    )
