"""Rows 50 and 51: whose account everything runs as, who does what needs root, and in which engine."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpuclusters.config.fault import finding, show
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.gcp_image import public_system
from gpuclusters.config.hosts import ExistingHosts
from gpuclusters.config.rules.rule import rule
from gpuclusters.config.usernetes import ContainerEngine, PackagedDriver, UsernetesConfig
from gpuclusters.config.usernetes_plan import uses_sudo
from gpuclusters.core.finding import Finding, Level

_OS_LOGIN = re.compile(r"sa_[0-9]+|ext_.+|[a-z0-9_]+_[a-z0-9]+_(com|org|net|edu|io|dev|gov)")
"""Names that OS Login makes of addresses: jane_doe_example_com, ext_jane_gmail_com, sa_1234567890."""


@rule(50, "usernetes.os-login-account", level=Level.WARN)
def the_account_is_none_of_os_login(config: UsernetesConfig) -> Iterable[Finding]:
    if _OS_LOGIN.fullmatch(config.account):
        yield finding(
            ("account",),
            "looks like an account of OS Login, which has a very high id and no range of subordinate ids",
            show(config.account),
            "write an account of the machine itself, or give this one ranges in /etc/subuid and /etc/subgid",
        )


@rule(50, "usernetes.driver-without-root")
def an_administrator_installs_the_driver(config: UsernetesConfig) -> Iterable[Finding]:
    if not uses_sudo(config) and isinstance(config.driver, PackagedDriver):
        yield finding(
            ("driver", "source"),
            "is host, and preparation.by is administrator: a driver cannot be installed without root",
            '"host"',
            "write driver: {source: installed}; the check says what is missing and the command for it",
        )


@rule(50, "usernetes.account-without-sudo")
def without_sudo_the_account_logs_in_itself(config: UsernetesConfig) -> Iterable[Finding]:
    if uses_sudo(config) or not isinstance(config.hosts, ExistingHosts | GcpHosts):
        return
    if config.hosts.user != config.account:
        yield finding(
            ("hosts", "user"),
            f"is not {config.account}, and preparation.by is administrator: without root nobody becomes"
            " another account",
            show(config.hosts.user),
            f"write {config.account} there, or the account that logs in as account",
        )


@rule(50, "usernetes.machines-not-prepared")
def new_machines_are_prepared_by_somebody(config: UsernetesConfig) -> Iterable[Finding]:
    if uses_sudo(config) or not isinstance(config.hosts, GcpHosts):
        return
    if public_system(config.hosts.image) is not None:
        yield finding(
            ("preparation", "by"),
            "is administrator, and the machines are made from a public image, which nobody has prepared",
            '"administrator"',
            "write sudo, or an image of your own that is prepared",
        )


@rule(51, "usernetes.container-engine")
def only_rootless_docker_is_built(config: UsernetesConfig) -> Iterable[Finding]:
    why = {
        ContainerEngine.PODMAN: "is not built: with its own network, pasta, flannel never reaches 10.96.0.1,"
        " and nobody has a GPU recipe for it",
        ContainerEngine.NERDCTL: "is not built: its rootless containerd and rootless Docker exclude each"
        " other on a host, and nobody has a GPU recipe for it",
    }
    if config.container_engine in why:
        yield finding(
            ("container-engine",),
            why[config.container_engine],
            show(config.container_engine.value),
            "write docker, or remove it",
        )
