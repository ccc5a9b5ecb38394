"""What an `rke2` or `usernetes` stack needs beside its section: secrets, and machines that exist already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pulumi

from gpuclusters.config import rke2_cluster, usernetes_plan
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.inventory import Inventory, resolve_machines
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.secrets import (
    ConfigError,
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
_REGISTRIES = "registry-credentials"
_TOKENS = ("server-token", "agent-token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What never enters the models. The machines are unknown in a preview while their lab does not run."""

    ssh_private_key: pulumi.Output[str] | None
    """Key for the machines, as PEM text; None if file or agent have it."""
    server_token: pulumi.Output[str] | None = None
    """With which servers join, of a cluster by RKE2 that is older than the stack; None: one is made."""
    agent_token: pulumi.Output[str] | None = None
    """With which agents join it; None: one is made."""
    registry_credentials: pulumi.Output[str] | None = None
    """YAML, `username` and `password` by registry; None if no registry wants one."""
    hosts: Mapping[str, HostEndpoint]
    """The machines by name; empty where the stack makes them."""


def read(config: Rke2Config | UsernetesConfig, inventory: Inventory | None, file: str) -> Secrets:
    """Read them.

    Raises:
        InventoryError: the lab runs and lacks a machine.
        ConfigError: secrets are missing, in clear, or not what they should be.
    """
    rke2 = isinstance(config, Rke2Config)
    reader = SecretReader(
        file, _section(config), inventory, _in_lab(config), needed(config), plain_secrets()
    )
    key = reader.read(_KEY)
    tokens = [reader.read(token) if rke2 else None for token in _TOKENS]
    registries = reader.read(_REGISTRIES) if needed(config) else None
    found = Secrets(
        ssh_private_key=key,
        server_token=tokens[0],
        agent_token=tokens[1],
        registry_credentials=registries,
        hosts=_hosts(config, inventory),
    )
    if reader.faults:
        raise ConfigError(file, reader.faults)
    return found


def needed(config: Rke2Config | UsernetesConfig) -> Mapping[str, str]:
    """Secrets that have to be set, and why."""
    if isinstance(config, Rke2Config) and config.registry_auth:
        return {_REGISTRIES: f"with which the nodes pull from {', '.join(config.registry_auth)}"}
    return {}


def _hosts(
    config: Rke2Config | UsernetesConfig, inventory: Inventory | None
) -> Mapping[str, HostEndpoint]:
    if not isinstance(config.hosts, ExistingHosts | LabHosts):
        return {}
    names = (
        rke2_cluster.machine_names(config)
        if isinstance(config, Rke2Config)
        else usernetes_plan.machine_names(config)
    )
    found = resolve_machines(names, config.hosts, inventory)
    return {name: endpoint(host) for name, host in found.items()}


def warnings(config: Rke2Config | UsernetesConfig) -> Iterable[Finding]:
    """Secrets that were set and that nobody reads."""
    section = _section(config)
    known = (_KEY, _REGISTRIES, *_TOKENS) if isinstance(config, Rke2Config) else (_KEY,)
    why = {key: f"the cluster type is {section}" for key in SECRET_KEYS if key not in known}
    why |= dict.fromkeys(_in_lab(config), f"{section}.hosts.source is lab")
    if isinstance(config, Rke2Config) and not config.registry_auth:
        why[_REGISTRIES] = "rke2.registry-auth names no registry"
    return unused(why)


def _section(config: Rke2Config | UsernetesConfig) -> str:
    return "rke2" if isinstance(config, Rke2Config) else "usernetes"


def _in_lab(config: Rke2Config | UsernetesConfig) -> tuple[str, ...]:
    return (_KEY,) if isinstance(config.hosts, LabHosts) else ()
