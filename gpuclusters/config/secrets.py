"""Secrets of a stack, and machines as components take them: from Pulumi, or from the lab that runs.

What never enters the models. Everything that only a running lab knows is unknown in a preview without one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi.runtime import config as runtime_config

from gpuclusters.config.fault import HIDDEN, NOTHING, finding, lines, told
from gpuclusters.config.inventory import Inventory, ResolvedHost
from gpuclusters.config.stack import NAMESPACE, SECRET_KEYS, WITHOUT_SECRETS, plain_secret
from gpuclusters.core.finding import Finding


class ConfigError(pulumi.RunError):
    """Everything that is wrong with the configuration, one line each.

    Pulumi prints a `RunError` as it is, without a traceback, and exits with a code other than 0.
    """

    def __init__(self, file: str, findings: Iterable[Finding]) -> None:
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


def endpoint(host: ResolvedHost | None) -> HostEndpoint:
    """A machine as an argument; None is one of a lab that does not run."""
    if host is None:
        return HostEndpoint(
            address=unknown(), port=unknown(), user=unknown(), host_key=unknown(), bmc=unknown()
        )
    return HostEndpoint(
        address=host.address,
        port=host.port,
        user=host.user,
        host_key=host.host_key,
        bmc=host.bmc.model_dump() if host.bmc else None,
    )


@dataclass(slots=True)
class SecretReader:
    """Reads secrets one by one, and gathers what is wrong with them."""

    file: str
    """Name of the stack file, for messages."""
    section: str
    """Key of the chosen section, for messages about the lab."""
    inventory: Inventory | None
    """None while the lab does not run, or if nothing is in it."""
    in_lab: Collection[str] = ()
    """Secrets that the lab has, and that nobody sets."""
    needed: Mapping[str, str] = field(default_factory=dict)
    """Why by secret, of those that have to be there; a missing one is a fault."""
    faults: list[Finding] = field(default_factory=list)

    def read(self, key: str) -> pulumi.Output[str] | None:
        """One of `SECRET_KEYS`; None if it is not set."""
        if key in self.in_lab:
            return self._of_lab(key)
        text = runtime_config.get_config(f"{NAMESPACE}:{key}")
        if text is None:
            if key not in self.needed:
                return None
            missing = _wrong(key, f"is missing, {self.needed[key]}", NOTHING)
            if pulumi.runtime.is_dry_run() and os.environ.get(WITHOUT_SECRETS):
                pulumi.log.warn(told(self.file, missing))
                return unknown(secret=True)
            self.faults.append(missing)
            return None
        _, what, signs = _KINDS[key]
        if not text.strip() or not all(sign in text for sign in signs):
            self.wrong(key, f"is not the text of {what}", HIDDEN)
        return pulumi.Config(NAMESPACE).get_secret(key)

    def wrong(self, key: str, wrong: str, got: str) -> None:
        """Add a fault."""
        self.faults.append(_wrong(key, wrong, got))

    def _of_lab(self, key: str) -> pulumi.Output[str] | None:
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
            said = f"{path} cannot be read: {error}"
            self.faults.append(lab_fault(self.section, said))
            return None


def _wrong(key: str, wrong: str, got: str) -> Finding:
    instead = f"run `pulumi config set --secret {key} < {_KINDS[key][0]}`"
    return finding((key,), wrong, got, instead, "config.wrong-secret")


def lab_fault(section: str, wrong: str) -> Finding:
    """What is wrong with the lab that a section names."""
    path = (section, "hosts", "source")
    instead = "see `gpu-clusters lab status`"
    return finding(path, f"cannot be resolved: {wrong}", '"lab"', instead, "config.lab-not-usable")


def plain_secrets() -> list[Finding]:
    """Secrets that stand in the stack file for everybody to read."""
    return [
        plain_secret(key)
        for key in SECRET_KEYS
        if runtime_config.get_config(f"{NAMESPACE}:{key}") is not None
        and not runtime_config.is_config_secret(f"{NAMESPACE}:{key}")
    ]


def unused(why: Mapping[str, str]) -> Iterator[Finding]:
    """Secrets that were set and that nobody reads; `why` by key."""
    for key, reason in why.items():
        if runtime_config.get_config(f"{NAMESPACE}:{key}") is not None:
            instead = f"remove it: `pulumi config rm {key}`"
            wrong = f"is not used, because {reason}"
            yield finding((key,), wrong, HIDDEN, instead, "config.unused-secret")


def unknown(*, secret: bool = False) -> pulumi.Output[Any]:
    """A value that an update will know."""

    def settled(*, value: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.Future()
        future.set_result(value)
        return future

    return pulumi.Output(
        set(), settled(value=None), is_known=settled(value=False), is_secret=settled(value=secret)
    )
