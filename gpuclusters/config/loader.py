"""Reads the configuration from Pulumi. Nothing else calls `pulumi.Config`, here or anywhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime import config as runtime_config

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.chart_files import chart_faults
from gpuclusters.config.errors import ConfigError
from gpuclusters.config.fault import HIDDEN, NOTHING, Fault
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.inventory import (
    Inventory,
    InventoryError,
    ResolvedHost,
    lab_folder,
    read_inventory,
    resolve_hosts,
    resolve_servers,
)
from gpuclusters.config.kubernetes import LabKubernetes, Rke2Kubernetes
from gpuclusters.config.stack import NAMESPACE, SECRET_KEYS, ClusterType, parse, plain_secret
from gpuclusters.domain.recycle import RecyclePolicy


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
    """What never enters the models: secrets, and addresses that only a running lab knows.

    All of it is unknown in a preview while the lab does not run.
    """

    kubeconfig: pulumi.Output[str] | None
    """Admin kubeconfig of the cluster, as text; None if the stack makes the cluster itself."""
    ssh_private_key: pulumi.Output[str] | None
    """Key for the machines, as PEM text; None if file or agent have it."""
    controller_ssh_private_key: pulumi.Output[str]
    """Key with which the controllers in the cluster reach the machines, as PEM text."""
    bmc_password: pulumi.Output[str] | None
    """Password of the management controllers; None if nobody asks them."""
    issuer: pulumi.Input[str]
    """OpenID issuer whose tokens the API accepts. No secret."""
    golden_firmware: pulumi.Input[Mapping[str, Sequence[str]]]
    """Accepted versions by prefix of the inventory item. No secret."""
    hosts: Mapping[str, HostEndpoint]
    """The machine of each node, by name."""
    servers: Mapping[str, HostEndpoint]
    """The machines of the servers of a cluster that the stack makes, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """All that a stack needs to know."""

    cluster_type: ClusterType
    section: CaasConfig
    """The configuration of the chosen cluster type."""
    secrets: Secrets
    warnings: tuple[Fault, ...]
    """What works but will hurt; already said in Pulumi's log."""


def load(project: Path | None = None) -> Loaded:
    """The configuration of the current stack.

    Args:
        project: folder of the project, by default the current one, in which Pulumi runs programs.

    Raises:
        ConfigError: with everything that is wrong, or because the lab that it names does not run.
    """
    file = f"Pulumi.{pulumi.get_stack()}.yaml"
    parsed = parse(_document(), file=file)
    if isinstance(parsed, list):
        raise ConfigError([*parsed, *_plain_secrets(file)])
    config = parsed.caas
    charts = chart_faults(config, file, project or Path.cwd())
    if charts:
        raise ConfigError(charts)
    inventory = _lab(config, file, project or Path.cwd())
    try:
        hosts = resolve_hosts(config, inventory)
        servers = resolve_servers(config, inventory)
    except InventoryError as error:
        raise ConfigError([_lab_fault(file, str(error))]) from error
    secrets = _secrets(config, inventory, hosts, servers, file)
    warnings = (*parsed.warnings, *_unused(config, file))
    for warning in warnings:
        pulumi.log.warn(str(warning))
    return Loaded(
        cluster_type=parsed.cluster_type,
        section=config,
        secrets=secrets,
        warnings=warnings,
    )


def _document() -> dict[str, Any]:
    """All keys of this program that are no secrets, parsed."""
    known = {**runtime_config.get_config_env(), **runtime_config.CONFIG.get()}
    document: dict[str, Any] = {}
    for full_key, text in known.items():
        namespace, _, key = full_key.partition(":")
        if namespace != NAMESPACE or key in SECRET_KEYS:
            continue
        if runtime_config.is_config_secret(full_key):
            # As it looks in the file, where `parse` refuses it without showing what is in it.
            document[key] = {"secure": ""}
        else:
            document[key] = _value(text)
    return document


def _value(text: Any) -> Any:
    """Pulumi hands objects over as JSON, everything else as text."""
    if isinstance(text, str) and text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _plain_secrets(file: str) -> list[Fault]:
    faults = []
    for key in SECRET_KEYS:
        full_key = f"{NAMESPACE}:{key}"
        given = runtime_config.get_config(full_key) is not None
        if given and not runtime_config.is_config_secret(full_key):
            faults.append(plain_secret(file, key))
    return faults


def _lab_fault(file: str, wrong: str) -> Fault:
    path = ("caas", "hosts", "source")
    return Fault(
        file, path, f"cannot be resolved: {wrong}", '"lab"', "see `gpu-clusters lab status`"
    )


def _lab(config: CaasConfig, file: str, project: Path) -> Inventory | None:
    """The running lab if the configuration needs one; None in a preview if it does not run."""
    if not isinstance(config.hosts, LabHosts) and not isinstance(config.kubernetes, LabKubernetes):
        return None
    folder = lab_folder(project)
    try:
        inventory = read_inventory(folder)
    except InventoryError as error:
        raise ConfigError([_lab_fault(file, str(error))]) from error
    if inventory is None and not pulumi.runtime.is_dry_run():
        raise ConfigError(
            [
                Fault(
                    file,
                    ("caas", "hosts", "source"),
                    f"is lab, and the lab is not running in {folder}",
                    '"lab"',
                    "run `make up` or `gpu-clusters lab start`",
                )
            ]
        )
    return inventory


def _secrets(
    config: CaasConfig,
    inventory: Inventory | None,
    hosts: tuple[ResolvedHost | None, ...],
    servers: Mapping[str, ResolvedHost | None],
    file: str,
) -> Secrets:
    faults = _plain_secrets(file)
    found = {
        key: _secret(key, config, inventory, file, faults)
        for key in SECRET_KEYS
        if not (key == "bmc-password" and not _asks_bmc(config))
        and not (key == "kubeconfig" and _makes_cluster(config))
    }
    if not faults:
        faults += [
            Fault(file, (key,), f"is missing, {_NEEDED[key]}", NOTHING, _SET[key])
            for key, output in found.items()
            if output is None and key in _NEEDED
        ]
    kubeconfig, controller_key = found.get("kubeconfig"), found["controller-ssh-private-key"]
    if faults or controller_key is None:
        raise ConfigError(faults)
    return Secrets(
        kubeconfig=kubeconfig,
        ssh_private_key=found["ssh-private-key"],
        controller_ssh_private_key=controller_key,
        bmc_password=found.get("bmc-password"),
        issuer=_issuer(config, inventory),
        golden_firmware=_golden_firmware(config, inventory),
        hosts={node.name: _endpoint(host) for node, host in zip(config.nodes, hosts, strict=True)},
        servers={name: _endpoint(host) for name, host in servers.items()},
    )


def _makes_cluster(config: CaasConfig) -> bool:
    return isinstance(config.kubernetes, Rke2Kubernetes)


def _asks_bmc(config: CaasConfig) -> bool:
    return config.leases.recycle_policy is RecyclePolicy.FULL


_SET = {
    "kubeconfig": "run `pulumi config set --secret kubeconfig < admin.kubeconfig`",
    "ssh-private-key": "run `pulumi config set --secret ssh-private-key < id_ed25519`",
    "controller-ssh-private-key": (
        "run `pulumi config set --secret controller-ssh-private-key < controllers_ed25519`"
    ),
    "bmc-password": "run `pulumi config set --secret bmc-password < bmc-password.txt`",
}
_NEEDED = {
    "kubeconfig": "while caas.kubernetes.source is existing",
    "controller-ssh-private-key": (
        "with which the controllers in the cluster reset GPUs and activate partitions"
    ),
    "bmc-password": "while caas.leases.recycle-policy is full",
}
_KEY_SIGNS = ("-----BEGIN ", "PRIVATE KEY-----")
_LOOKS_LIKE = {
    "kubeconfig": ("a kubeconfig", ("clusters",)),
    "ssh-private-key": ("a private key in PEM", _KEY_SIGNS),
    "controller-ssh-private-key": ("a private key in PEM", _KEY_SIGNS),
    "bmc-password": ("a password", ()),
}


def _secret(
    key: str, config: CaasConfig, inventory: Inventory | None, file: str, faults: list[Fault]
) -> pulumi.Output[str] | None:
    """From the lab if it has it, unknown while the lab does not run, else from the stack."""
    if not _lab_has(key, config):
        return _from_stack(key, file, faults)
    if inventory is None:
        return _unknown()
    path = {
        "kubeconfig": inventory.kubeconfig,
        "bmc-password": inventory.bmc_password,
    }.get(key, inventory.ssh_private_key)
    return _from_file(path, file, faults)


def _lab_has(key: str, config: CaasConfig) -> bool:
    source = config.kubernetes if key == "kubeconfig" else config.hosts
    return isinstance(source, LabKubernetes | LabHosts)


def _issuer(config: CaasConfig, inventory: Inventory | None) -> pulumi.Input[str]:
    if config.api.issuer is not None:
        return config.api.issuer
    return inventory.issuer if inventory else _unknown(secret=False)


def _golden_firmware(
    config: CaasConfig, inventory: Inventory | None
) -> pulumi.Input[Mapping[str, Sequence[str]]]:
    stated = config.leases.golden_firmware.versions
    if stated or not isinstance(config.hosts, LabHosts):
        return stated
    return inventory.golden_firmware if inventory else _unknown(secret=False)


def _from_stack(key: str, file: str, faults: list[Fault]) -> pulumi.Output[str] | None:
    """A secret of the stack. Most often what is wrong with one is that it is a path."""
    text = runtime_config.get_config(f"{NAMESPACE}:{key}")
    if text is None:
        return None
    what, signs = _LOOKS_LIKE[key]
    if not text.strip() or not all(sign in text for sign in signs):
        faults.append(Fault(file, (key,), f"is not the text of {what}", HIDDEN, _SET[key]))
    return pulumi.Config(NAMESPACE).get_secret(key)


def _unused(config: CaasConfig, file: str) -> list[Fault]:
    """Secrets that were set and that nobody reads."""
    why = {
        key: f"caas.{'kubernetes' if key == 'kubeconfig' else 'hosts'}.source is lab"
        for key in SECRET_KEYS
        if _lab_has(key, config)
    }
    if _makes_cluster(config):
        why["kubeconfig"] = "caas.kubernetes.source is rke2"
    if not _asks_bmc(config):
        why.setdefault("bmc-password", "caas.leases.recycle-policy is not full")
    return [
        Fault(
            file,
            (key,),
            f"is not used, because {reason}",
            HIDDEN,
            f"remove it: `pulumi config rm {key}`",
        )
        for key, reason in why.items()
        if runtime_config.get_config(f"{NAMESPACE}:{key}") is not None
    ]


def _endpoint(host: ResolvedHost | None) -> HostEndpoint:
    if host is None:
        return HostEndpoint(
            address=_unknown(secret=False),
            port=_unknown(secret=False),
            user=_unknown(secret=False),
            host_key=_unknown(secret=False),
            bmc=_unknown(secret=False),
        )
    return HostEndpoint(
        address=host.address,
        port=host.port,
        user=host.user,
        host_key=host.host_key,
        bmc=asdict(host.bmc) if host.bmc else None,
    )


def _from_file(path: Path, file: str, faults: list[Fault]) -> pulumi.Output[str] | None:
    try:
        return pulumi.Output.secret(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        faults.append(_lab_fault(file, f"{path} cannot be read: {error}"))
        return None


def _unknown(*, secret: bool = True) -> pulumi.Output[Any]:
    """A value that an update will know."""

    def settled(*, value: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.Future()
        future.set_result(value)
        return future

    return pulumi.Output(
        set(), settled(value=None), is_known=settled(value=False), is_secret=settled(value=secret)
    )
