"""What a `caas` stack needs beside its section: secrets, machines, and what only the lab knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi.runtime import config as runtime_config

from gpuclusters.config import certificate
from gpuclusters.config.api import GivenCertificate
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import HIDDEN
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.inventory import Inventory, resolve_hosts, resolve_servers
from gpuclusters.config.kubernetes import LabKubernetes, Rke2Kubernetes
from gpuclusters.config.secrets import (
    ConfigError,
    HostEndpoint,
    SecretReader,
    endpoint,
    plain_secrets,
    unknown,
    unused,
)
from gpuclusters.config.stack import NAMESPACE, SECRET_KEYS
from gpuclusters.core.finding import Finding
from gpuclusters.lease.model import RecyclePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What never enters the models: secrets, and addresses that only a running lab knows.

    All of it is unknown in a preview while the lab does not run.
    """

    kubeconfig: pulumi.Output[str] | None
    """Admin kubeconfig of the cluster, as text; None if the stack makes the cluster itself."""
    ssh_private_key: pulumi.Output[str] | None
    """Key for the machines, as PEM text; None if file or agent have it."""
    controller_ssh_private_key: pulumi.Output[str]
    """Key with which the controllers in the cluster reach the machines, as PEM text."""
    server_token: pulumi.Output[str] | None
    """With which servers join, of an RKE2 that is older than the stack; None: one is made."""
    agent_token: pulumi.Output[str] | None
    """With which agents join it; None: one is made."""
    bmc_password: pulumi.Output[str] | None
    """Password of the management controllers; None if nobody asks them."""
    tenant_registry_credentials: pulumi.Output[str] | None
    """YAML, `username` and `password` by tenant and registry; None if no registry wants one."""
    api_certificate: pulumi.Input[str] | None
    """Chain of the API's certificate, as PEM text; None if the API has none, or cert-manager makes it. No
    secret."""
    api_private_key: pulumi.Output[str] | None
    """Its key, as PEM text."""
    issuer: pulumi.Input[str]
    """OpenID issuer whose tokens the API accepts. No secret."""
    issuer_keys: pulumi.Input[Mapping[str, str]] | None
    """`url` and `ca_certificate` of the keys of the lab's issuer where pods do not reach it by its name; None
    where they do, and where the configuration says whose keys count. No secret."""
    golden_firmware: pulumi.Input[Mapping[str, Sequence[str]]]
    """Accepted versions by prefix of the inventory item. No secret."""
    hosts: Mapping[str, HostEndpoint]
    """The machine of each node, by name."""
    servers: Mapping[str, HostEndpoint]
    """The machines of the servers of a cluster that the stack makes, by name."""


def read(config: CaasConfig, inventory: Inventory | None, file: str) -> Secrets:
    """Read them.

    Raises:
        InventoryError: the lab runs and lacks a machine.
        ConfigError: secrets are missing, in clear, or not what they should be.
    """
    hosts, servers = resolve_hosts(config, inventory), resolve_servers(config, inventory)
    reader = SecretReader(file, "caas", inventory, _in_lab(config), needed(config), plain_secrets())
    makes_cluster = _makes_cluster(config)
    controllers = reader.read("controller-ssh-private-key")
    found = Secrets(
        kubeconfig=None if makes_cluster else reader.read("kubeconfig"),
        ssh_private_key=reader.read("ssh-private-key"),
        controller_ssh_private_key=controllers or unknown(secret=True),
        server_token=reader.read("server-token") if makes_cluster else None,
        agent_token=reader.read("agent-token") if makes_cluster else None,
        bmc_password=reader.read("bmc-password") if _asks_bmc(config) else None,
        tenant_registry_credentials=reader.read(_REGISTRIES) if _pulling(config) else None,
        api_certificate=_api_certificate(config, inventory),
        api_private_key=_api_private_key(config, reader),
        issuer=config.api.issuer or (inventory.issuer if inventory else unknown()),
        issuer_keys=_issuer_keys(config, inventory),
        golden_firmware=_golden_firmware(config, inventory),
        hosts={name: endpoint(host) for name, host in hosts.items()},
        servers={name: endpoint(host) for name, host in servers.items()},
    )
    if reader.faults:
        raise ConfigError(file, reader.faults)
    return found


def needed(config: CaasConfig) -> Mapping[str, str]:
    """Secrets that have to be set, and why."""
    why = {
        "controller-ssh-private-key": "with which the controllers reset GPUs and activate partitions"
    }
    if not _makes_cluster(config):
        why["kubeconfig"] = "while caas.kubernetes.source is existing"
    if _asks_bmc(config):
        why["bmc-password"] = "while caas.leases.recycle-policy is full"
    if pulling := _pulling(config):
        why[_REGISTRIES] = f"with which {', '.join(pulling)} pull images"
    if given_certificate(config):
        why["api-private-key"] = "while caas.api.exposure.certificate.source is given"
    return {key: reason for key, reason in why.items() if key not in _in_lab(config)}


def warnings(config: CaasConfig) -> Iterable[Finding]:
    """Secrets that were set and that nobody reads."""
    known = (*_READ, _REGISTRIES, *(_TOKENS if _makes_cluster(config) else ()))
    why = {key: "the cluster type is caas" for key in SECRET_KEYS if key not in known}
    why |= {
        key: f"caas.{'kubernetes' if key in _OF_CLUSTER else 'hosts'}.source is lab"
        for key in _in_lab(config)
    }
    if _makes_cluster(config):
        why["kubeconfig"] = "caas.kubernetes.source is rke2"
    if not _asks_bmc(config):
        why.setdefault("bmc-password", "caas.leases.recycle-policy is not full")
    if not _pulling(config):
        why[_REGISTRIES] = "no tenant's images.registry-auth names a registry"
    if given_certificate(config) is None:
        why.setdefault("api-private-key", "caas.api.exposure names no given certificate")
    return unused(why)


def lab_ends_tls(config: CaasConfig) -> bool:
    """Whether the API shows a certificate of the lab."""
    return isinstance(config.kubernetes, LabKubernetes) and config.api.exposure is None


def given_certificate(config: CaasConfig) -> GivenCertificate | None:
    """The certificate that the configuration gives."""
    stated = getattr(config.api.exposure, "certificate", None)
    return stated if isinstance(stated, GivenCertificate) else None


def _api_certificate(config: CaasConfig, inventory: Inventory | None) -> pulumi.Input[str] | None:
    if lab_ends_tls(config):
        return inventory.api_certificate.read_text(encoding="utf-8") if inventory else unknown()
    given = given_certificate(config)
    return given.chain if given else None


def _api_private_key(config: CaasConfig, reader: SecretReader) -> pulumi.Output[str] | None:
    key = "api-private-key"
    if lab_ends_tls(config):
        return reader.read(key)
    given = given_certificate(config)
    if given is None:
        return None
    known = len(reader.faults)
    read = reader.read(key)
    text = runtime_config.get_config(f"{NAMESPACE}:{key}")
    if text is None or len(reader.faults) > known:
        return read
    try:
        wrong = (
            ""
            if certificate.fits(certificate.read(given.chain), text)
            else "is not the key of the certificate in caas.api.exposure.certificate.chain"
        )
    except ValueError:
        wrong = "is not a private key in PEM without a passphrase"
    if wrong:
        reader.wrong(key, wrong, HIDDEN)
    return read


_READ = (
    *("kubeconfig", "ssh-private-key", "controller-ssh-private-key", "bmc-password"),
    "api-private-key",
)
_OF_CLUSTER = ("kubeconfig", "api-private-key")
_REGISTRIES = "tenant-registry-credentials"
_TOKENS = ("server-token", "agent-token")


def _pulling(config: CaasConfig) -> list[str]:
    """Tenants whose registries want a password."""
    return [tenant.name for tenant in config.tenants if tenant.images.registry_auth]


def _in_lab(config: CaasConfig) -> list[str]:
    return [
        key
        for key in _READ
        if isinstance(
            config.kubernetes if key in _OF_CLUSTER else config.hosts, LabKubernetes | LabHosts
        )
    ]


def _makes_cluster(config: CaasConfig) -> bool:
    return isinstance(config.kubernetes, Rke2Kubernetes)


def _asks_bmc(config: CaasConfig) -> bool:
    return config.leases.recycle_policy is RecyclePolicy.FULL


def _issuer_keys(
    config: CaasConfig, inventory: Inventory | None
) -> pulumi.Input[Mapping[str, str]] | None:
    stated = config.api.issuer is not None or config.api.jwks_url is not None
    if stated or inventory is None or inventory.issuer_keys is None:
        return None
    return inventory.issuer_keys.model_dump()


def _golden_firmware(
    config: CaasConfig, inventory: Inventory | None
) -> pulumi.Input[Mapping[str, Sequence[str]]]:
    stated = config.leases.golden_firmware.versions
    if stated or not isinstance(config.hosts, LabHosts):
        return stated
    return inventory.golden_firmware if inventory else unknown()
