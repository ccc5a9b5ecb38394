"""What a `usernetes` stack needs beside its section: the key for its machines, and those that exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pulumi

from gpuclusters.config import usernetes_plan
from gpuclusters.config.errors import ConfigError
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.inventory import Inventory, resolve_machines
from gpuclusters.config.secrets import (
    HostEndpoint,
    SecretReader,
    endpoint,
    plain_secrets,
    unused,
)
from gpuclusters.config.stack import SECRET_KEYS
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.core.finding import Finding

_KEY = "ssh-private-key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What never enters the models. The machines are unknown in a preview while their lab does not run."""

    ssh_private_key: pulumi.Output[str] | None
    """Key for the machines, as PEM text; None if file or agent have it."""
    hosts: Mapping[str, HostEndpoint]
    """The machines by name; empty where the stack makes them."""


def read(config: UsernetesConfig, inventory: Inventory | None, file: str) -> Secrets:
    """Read them.

    Raises:
        InventoryError: the lab runs and lacks a machine.
        ConfigError: secrets are in clear, or not what they should be.
    """
    hosts = (
        resolve_machines(usernetes_plan.machine_names(config), config.hosts, inventory)
        if isinstance(config.hosts, ExistingHosts | LabHosts)
        else {}
    )
    reader = SecretReader(file, "usernetes", inventory, _in_lab(config), plain_secrets())
    found = Secrets(
        ssh_private_key=reader.read(_KEY),
        hosts={name: endpoint(host) for name, host in hosts.items()},
    )
    if reader.faults:
        raise ConfigError(file, reader.faults)
    return found


def warnings(config: UsernetesConfig) -> Iterable[Finding]:
    """Secrets that were set and that nobody reads."""
    why = {key: "the cluster type is usernetes" for key in SECRET_KEYS if key != _KEY}
    why |= dict.fromkeys(_in_lab(config), "usernetes.hosts.source is lab")
    return unused(why)


def _in_lab(config: UsernetesConfig) -> tuple[str, ...]:
    return (_KEY,) if isinstance(config.hosts, LabHosts) else ()
