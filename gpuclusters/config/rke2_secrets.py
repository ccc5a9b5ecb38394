"""What an `rke2` stack needs beside its section: secrets, and the machines that exist already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pulumi

from gpuclusters.config.errors import ConfigError
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.inventory import Inventory, resolve_machines
from gpuclusters.config.rke2_cluster import Rke2Config, machine_names
from gpuclusters.config.secrets import (
    HostEndpoint,
    SecretReader,
    endpoint,
    plain_secrets,
    unused,
)
from gpuclusters.config.stack import SECRET_KEYS
from gpuclusters.core.finding import Finding

_READ = ("ssh-private-key", "server-token", "agent-token", "registry-credentials")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What never enters the models. The machines are unknown in a preview while their lab does not run."""

    ssh_private_key: pulumi.Output[str] | None
    """Key for the machines, as PEM text; None if file or agent have it."""
    server_token: pulumi.Output[str] | None
    """With which servers join, of a cluster that is older than the stack; None: one is made."""
    agent_token: pulumi.Output[str] | None
    """With which agents join; None: one is made."""
    registry_credentials: pulumi.Output[str] | None
    """YAML, `username` and `password` by registry; None if no registry wants one."""
    hosts: Mapping[str, HostEndpoint]
    """The machines by name; empty where the stack makes them."""


def read(config: Rke2Config, inventory: Inventory | None, file: str) -> Secrets:
    """Read them.

    Raises:
        InventoryError: the lab runs and lacks a machine.
        ConfigError: secrets are missing, in clear, or not what they should be.
    """
    hosts = (
        resolve_machines(machine_names(config), config.hosts, inventory)
        if isinstance(config.hosts, ExistingHosts | LabHosts)
        else {}
    )
    plain = plain_secrets()
    reader = SecretReader(file, "rke2", inventory, _in_lab(config), plain)
    wanted = ", ".join(config.registry_auth)
    found = Secrets(
        ssh_private_key=reader.read("ssh-private-key"),
        server_token=reader.read("server-token"),
        agent_token=reader.read("agent-token"),
        registry_credentials=reader.read(
            "registry-credentials", needed=f"with which the nodes pull from {wanted}"
        )
        if config.registry_auth
        else None,
        hosts={name: endpoint(host) for name, host in hosts.items()},
    )
    if reader.faults:
        raise ConfigError(file, reader.faults)
    return found


def warnings(config: Rke2Config) -> Iterable[Finding]:
    """Secrets that were set and that nobody reads."""
    why = {key: "the cluster type is rke2" for key in SECRET_KEYS if key not in _READ}
    why |= dict.fromkeys(_in_lab(config), "rke2.hosts.source is lab")
    if not config.registry_auth:
        why["registry-credentials"] = "rke2.registry-auth names no registry"
    return unused(why)


def _in_lab(config: Rke2Config) -> tuple[str, ...]:
    return ("ssh-private-key",) if isinstance(config.hosts, LabHosts) else ()
