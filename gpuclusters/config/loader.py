"""Reads the configuration from Pulumi. Nothing else calls `pulumi.Config`, here or anywhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime import config as runtime_config

from gpuclusters.config.caas import CaasConfig
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
)
from gpuclusters.config.kubernetes import LabKubernetes
from gpuclusters.config.stack import NAMESPACE, SECRET_KEYS, ClusterType, parse, plain_secret


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEndpoint:
    """One machine as an argument of components. Unknown in a preview while the lab does not run."""

    address: pulumi.Input[str]
    port: pulumi.Input[int]
    user: pulumi.Input[str]
    host_key: pulumi.Input[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What never enters the models: secrets, and addresses that only a running lab knows.

    All of it is unknown in a preview while the lab does not run.
    """

    kubeconfig: pulumi.Output[str]
    """Admin kubeconfig of the cluster, as text."""
    ssh_private_key: pulumi.Output[str] | None
    """Key for the machines, as PEM text; None if file or agent have it."""
    hosts: Mapping[str, HostEndpoint]
    """The machine of each node, by name."""


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
    inventory = _lab(config, file, project or Path.cwd())
    try:
        hosts = resolve_hosts(config, inventory)
    except InventoryError as error:
        raise ConfigError([_lab_fault(file, str(error))]) from error
    secrets = _secrets(config, inventory, hosts, file)
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
    file: str,
) -> Secrets:
    faults = _plain_secrets(file)
    kubeconfig: pulumi.Output[str] | None
    if isinstance(config.kubernetes, LabKubernetes):
        kubeconfig = _from_file(inventory.kubeconfig, file, faults) if inventory else _unknown()
    else:
        kubeconfig = _from_stack("kubeconfig", file, faults)
        if kubeconfig is None and not faults:
            wrong = "is missing, while caas.kubernetes.source is existing"
            faults.append(Fault(file, ("kubeconfig",), wrong, NOTHING, _SET["kubeconfig"]))
    ssh_key: pulumi.Output[str] | None
    if isinstance(config.hosts, LabHosts):
        ssh_key = _from_file(inventory.ssh_private_key, file, faults) if inventory else _unknown()
    else:
        ssh_key = _from_stack("ssh-private-key", file, faults)
    if faults or kubeconfig is None:
        raise ConfigError(faults)
    endpoints = {node.name: _endpoint(host) for node, host in zip(config.nodes, hosts, strict=True)}
    return Secrets(kubeconfig=kubeconfig, ssh_private_key=ssh_key, hosts=endpoints)


_SET = {
    "kubeconfig": "run `pulumi config set --secret kubeconfig < admin.kubeconfig`",
    "ssh-private-key": "run `pulumi config set --secret ssh-private-key < id_ed25519`",
}
_LOOKS_LIKE = {"kubeconfig": ("clusters",), "ssh-private-key": ("-----BEGIN ", "PRIVATE KEY-----")}


def _from_stack(key: str, file: str, faults: list[Fault]) -> pulumi.Output[str] | None:
    """A secret of the stack. Most often what is wrong with one is that it is a path."""
    text = runtime_config.get_config(f"{NAMESPACE}:{key}")
    if text is None:
        return None
    if not all(sign in text for sign in _LOOKS_LIKE[key]):
        what = "a kubeconfig" if key == "kubeconfig" else "a private key in PEM"
        faults.append(Fault(file, (key,), f"is not the text of {what}", HIDDEN, _SET[key]))
    return pulumi.Config(NAMESPACE).get_secret(key)


def _unused(config: CaasConfig, file: str) -> list[Fault]:
    """Secrets that were set and that nobody reads."""
    unused = {
        "kubeconfig": ("kubernetes", isinstance(config.kubernetes, LabKubernetes)),
        "ssh-private-key": ("hosts", isinstance(config.hosts, LabHosts)),
    }
    return [
        Fault(
            file,
            (key,),
            f"is not used, because caas.{section}.source is lab",
            HIDDEN,
            f"remove it: `pulumi config rm {key}`",
        )
        for key, (section, lab) in unused.items()
        if lab and runtime_config.get_config(f"{NAMESPACE}:{key}") is not None
    ]


def _endpoint(host: ResolvedHost | None) -> HostEndpoint:
    if host is None:
        return HostEndpoint(
            address=_unknown(secret=False),
            port=_unknown(secret=False),
            user=_unknown(secret=False),
            host_key=_unknown(secret=False),
        )
    return HostEndpoint(
        address=host.address, port=host.port, user=host.user, host_key=host.host_key
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
