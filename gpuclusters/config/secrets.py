"""What a stack needs beside its section: secrets, machines, what only a lab knows. Unknown without one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime import config as runtime_config

from gpuclusters.config import certificate, usernetes_plan
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import (
    SECRET_KEYS,
    ClusterConfig,
    Need,
    Use,
    given_chain,
    lab_ends_tls,
    uses,
)
from gpuclusters.config.fault import HIDDEN, NOTHING, finding, lines, told
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.gke import GkeConfig
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.inventory import (
    Inventory,
    ResolvedHost,
    resolve_hosts,
    resolve_machines,
    resolve_servers,
)
from gpuclusters.config.rke2_cluster import FoundCluster, Rke2Config, machine_names
from gpuclusters.config.stack import NAMESPACE, WITHOUT_SECRETS, plain_secret
from gpuclusters.core.finding import Finding


class ConfigError(pulumi.RunError):
    """Everything that is wrong with the configuration, one line each.

    Pulumi prints a `RunError` as it is, without a traceback, and exits with a code other than 0.
    """

    def __init__(self, file: Path, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(lines(file, self.findings)))


_KEY = ("a private key in PEM", ("-----BEGIN ", "PRIVATE KEY-----"))
_TOKEN = ("a token", ())
_ACCOUNT = ("username", "password")
_KINDS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "kubeconfig": ("admin.kubeconfig", "a kubeconfig", ("clusters",)),
    "ssh-private-key": ("id_ed25519", *_KEY),
    "controller-ssh-private-key": ("controllers_ed25519", *_KEY),
    "bmc-password": ("bmc-password.txt", "a password", ()),
    "api-private-key": ("api.key", *_KEY),
    "server-token": ("server-token.txt", *_TOKEN),
    "agent-token": ("agent-token.txt", *_TOKEN),
    "registry-credentials": (
        *("registry-credentials.yaml", "`username` and `password` by registry", _ACCOUNT),
    ),
    "tenant-registry-credentials": (
        "tenant-registry-credentials.yaml",
        "`username` and `password` by tenant and registry",
        _ACCOUNT,
    ),
}
"""A file that it may be set from, what it is, and what its text holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEndpoint:
    """One machine as an argument of components. Unknown in a preview while the lab does not run."""

    address: pulumi.Input[str]
    port: pulumi.Input[int]
    user: pulumi.Input[str]
    host_key: pulumi.Input[str]
    bmc: pulumi.Input[Mapping[str, Any]] | None
    """`url`, `user` and `certificate` of its management controller; None if nobody asks it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Secrets by key, None where the stack does not read one or it is not set; and the machines."""

    ssh_private_key: pulumi.Output[str] | None
    """Key for the machines, as PEM text; None if file or agent have it."""
    server_token: pulumi.Output[str] | None
    """With which servers join, of an RKE2 that is older than the stack; None: one is made."""
    agent_token: pulumi.Output[str] | None
    """With which agents join it; None: one is made."""
    registry_credentials: pulumi.Output[str] | None
    """YAML, `username` and `password` by registry."""
    kubeconfig: pulumi.Output[str] | None
    """Admin kubeconfig of the cluster, as text; None if the stack makes the cluster itself."""
    controller_ssh_private_key: pulumi.Output[str] | None
    """Key with which the controllers in the cluster reach the machines, as PEM text."""
    bmc_password: pulumi.Output[str] | None
    """Password of the management controllers; None if nobody asks them."""
    tenant_registry_credentials: pulumi.Output[str] | None
    """YAML, `username` and `password` by tenant and registry; None if no registry wants one."""
    api_private_key: pulumi.Output[str] | None
    """Key of the API's certificate, as PEM text."""
    hosts: Mapping[str, HostEndpoint]
    """The machines by name; empty where the stack makes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaasSecrets(Secrets):
    """Also what a `caas` cluster takes from its lab where nobody states it. None of that is secret."""

    controller_ssh_private_key: pulumi.Output[str]
    api_certificate: pulumi.Input[str] | None
    """Chain of the API's certificate, as PEM text; None if it has none, or cert-manager makes it."""
    issuer: pulumi.Input[str]
    """OpenID issuer whose tokens the API accepts."""
    issuer_keys: pulumi.Input[Mapping[str, str]] | None
    """`url` and `ca_certificate` of the keys of the lab's issuer where pods do not reach it by its name; None
    where they do, and where the configuration says whose keys count."""
    golden_firmware: pulumi.Input[Mapping[str, Sequence[str]]]
    """Accepted versions by prefix of the inventory item."""
    servers: Mapping[str, HostEndpoint]
    """The machines of the servers of a cluster that the stack makes, by name."""


def read(config: ClusterConfig, inventory: Inventory | None, file: Path) -> Secrets:
    """The secrets of a stack; `ConfigError` with all faults, `InventoryError` if the lab lacks a machine."""
    reader = _Reader(config, file, inventory, faults=plain_secrets())
    more: dict[str, Any] = {}
    if isinstance(config, CaasConfig):
        machines = resolve_hosts(config, inventory)
        more = _of_caas(config, inventory)
    elif isinstance(config, FoundCluster | GkeConfig) or isinstance(config.hosts, GcpHosts):
        machines = {}
    else:
        names = (
            machine_names(config)
            if isinstance(config, Rke2Config)
            else usernetes_plan.machine_names(config)
        )
        machines = resolve_machines(names, config.hosts, inventory)
    read_here: dict[str, Any] = {
        key.replace("-", "_"): reader.read(key, use) for key, use in uses(config).items()
    }
    kind = CaasSecrets if isinstance(config, CaasConfig) else Secrets
    found = kind(hosts=_endpoints(machines), **read_here, **more)
    if reader.faults:
        raise ConfigError(file, reader.faults)
    return found


def _of_caas(config: CaasConfig, inventory: Inventory | None) -> dict[str, Any]:
    api, firmware = config.api, config.leases.golden_firmware.versions
    chain: pulumi.Input[str] | None = given_chain(config)
    if lab_ends_tls(config):
        chain = inventory.api_certificate.read_text(encoding="utf-8") if inventory else unknown()
    keys = inventory.issuer_keys if inventory and not (api.issuer or api.jwks_url) else None
    of_lab = not firmware and isinstance(config.hosts, LabHosts)
    return {
        "api_certificate": chain,
        "issuer": api.issuer or (inventory.issuer if inventory else unknown()),
        "issuer_keys": keys and keys.model_dump(),
        "golden_firmware": (inventory.golden_firmware if inventory else unknown())
        if of_lab
        else firmware,
        "servers": _endpoints(resolve_servers(config, inventory)),
    }


def _endpoints(hosts: Mapping[str, ResolvedHost | None]) -> Mapping[str, HostEndpoint]:
    """Machines as arguments; None is one of a lab that does not run."""
    reached = {"address", "port", "user", "host_key", "bmc"}
    unreached = {key: unknown() for key in reached}
    return {
        name: HostEndpoint(**(host.model_dump(include=reached) if host else unreached))
        for name, host in hosts.items()
    }


@dataclass(slots=True)
class _Reader:
    """Reads secrets one by one, and gathers what is wrong with them."""

    config: ClusterConfig
    file: Path
    inventory: Inventory | None
    faults: list[Finding] = field(default_factory=list)

    def read(self, key: str, use: Use) -> pulumi.Output[str] | None:
        match use.need:
            case Need.NOT:
                return None
            case Need.LAB:
                return self._of_lab(key, use.why.partition(".")[0])
        text = runtime_config.get_config(f"{NAMESPACE}:{key}")
        if text is not None:
            if found := wrong(self.config, key, text):
                self.faults.append(found)
            return pulumi.Config(NAMESPACE).get_secret(key)
        if use.need is Need.MUST:
            missing = _fault(key, NOTHING, "missing", why=use.why)
            if pulumi.runtime.is_dry_run() and os.environ.get(WITHOUT_SECRETS):
                pulumi.log.warn(told(self.file, missing))
                return unknown(secret=True)
            self.faults.append(missing)
        return None

    def _of_lab(self, key: str, section: str) -> pulumi.Output[str] | None:
        if self.inventory is None:
            return unknown(secret=True)
        path = {
            "kubeconfig": self.inventory.kubeconfig,
            "bmc-password": self.inventory.bmc_password,
            "api-private-key": self.inventory.api_private_key,
        }.get(key, self.inventory.ssh_private_key)
        try:
            return pulumi.Output.secret(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            self.faults.append(unresolved(section, f"{path} cannot be read: {error}"))
            return None


def wrong(config: ClusterConfig, key: str, text: str) -> Finding | None:
    """Why the text of a secret is of no use to the stack; None if it looks right."""
    case = _case(config, key, text)
    return _fault(key, HIDDEN, case) if case else None


def _case(config: ClusterConfig, key: str, text: str) -> str:
    if not text.strip() or not all(sign in text for sign in _KINDS[key][2]):
        return "text"
    if key == "ssh-private-key" and isinstance(config.hosts, GcpHosts):
        public = _public_half(text)
        if public and public not in config.hosts.authorized_keys:
            return "not-authorized"
    if key == "api-private-key" and isinstance(config, CaasConfig):
        chain = given_chain(config)
        try:
            if chain and not certificate.fits(certificate.read(chain), text):
                return "other-certificate"
        except ValueError:
            return "passphrase"
    return ""


def _public_half(text: str) -> str:
    """Type and public key of a private one; empty where it cannot be read here."""
    import asyncssh  # late: for machines on Google Cloud alone

    try:
        exported = asyncssh.import_private_key(text).export_public_key().decode()
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
        return ""
    return " ".join(exported.split()[:2])


def _fault(key: str, got: str, case: str, **values: str) -> Finding:
    file, what, _ = _KINDS[key]
    return finding(
        "config.wrong-secret", (key,), got, case, key=key, file=file, what=what, **values
    )


def lab_fault(section: str, case: str, **values: object) -> Finding:
    path = (section, "hosts", "source")
    return finding("config.lab-not-usable", path, '"lab"', case, **values)


def unresolved(section: str, why: object) -> Finding:
    """Something of the lab's is not to be had."""
    return lab_fault(section, "unresolved", why=why)


def plain_secrets() -> list[Finding]:
    """Secrets that stand in the stack file for everybody to read."""
    return [
        plain_secret(key)
        for key in SECRET_KEYS
        if runtime_config.get_config(f"{NAMESPACE}:{key}") is not None
        and not runtime_config.is_config_secret(f"{NAMESPACE}:{key}")
    ]


def unused(config: ClusterConfig) -> Iterator[Finding]:
    """Secrets that were set and that nobody reads."""
    for key, use in uses(config).items():
        set_to = runtime_config.get_config(f"{NAMESPACE}:{key}")
        if set_to is not None and use.need in {Need.LAB, Need.NOT}:
            yield finding("config.unused-secret", (key,), HIDDEN, "key", key=key, why=use.why)


def unknown(*, secret: bool = False) -> pulumi.Output[Any]:
    """A value that an update will know."""
    value: Any = pulumi.UNKNOWN
    return pulumi.Output.secret(value) if secret else pulumi.Output.from_input(value)
