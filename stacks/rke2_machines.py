"""The machines of an `rke2` cluster: where they come from, their drivers, their places in the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import yaml

from components.host_connection import HostConnection
from components.rke2.cluster import Rke2Cluster, Rke2ClusterArgs, Rke2Host
from components.rke2.driver_host import DriverHost, DriverHostArgs
from gpuclusters.boot.model import RebootPolicy
from gpuclusters.config import rke2_cluster_plan, rke2_settings
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.rke2_cluster_driver import OperatorDriver, PrecompiledDriver
from gpuclusters.config.rke2_cluster_machines import MachinePlan, machines
from gpuclusters.config.rke2_secrets import Secrets
from gpuclusters.domain import rke2, rke2_config
from gpuclusters.domain.rke2 import Role
from gpuclusters.domain.rke2_matrix import ModulesPolicy


def drivers(
    config: Rke2Config,
    connections: Mapping[str, HostConnection],
    *,
    requires: Mapping[str, Sequence[pulumi.Resource]],
) -> Mapping[str, DriverHost]:
    """The driver of every machine with GPUs, by its name; `requires` is what each waits for."""
    plans = [one for one in machines(config) if one.gpus]
    servers = [connections[name] for name in config.servers]
    made: dict[str, DriverHost] = {}
    for turn, plan in enumerate(plans):
        # As many at a time as join: a new driver takes its node out of service.
        earlier = plans[turn - config.agents_at_once] if turn >= config.agents_at_once else None
        before = [
            *requires.get(plan.name, ()),
            *(made[earlier.name].ready if earlier is not None else ()),
        ]
        made[plan.name] = DriverHost(
            plan.name, _driver(config, plan, connections[plan.name], servers, before)
        )
    return made


def _driver(
    config: Rke2Config,
    plan: MachinePlan,
    connection: HostConnection,
    servers: Sequence[HostConnection],
    before: Sequence[pulumi.Resource],
) -> DriverHostArgs:
    stated = config.driver
    common: dict[str, Any] = {
        "connection": connection,
        "gpus": plan.gpus,
        "control": servers,
        "drain_timeout_seconds": config.drain_timeout_seconds,
        "reboot_timeout_seconds": config.timeouts.driver_seconds,
        "requires": before,
        "adopt": plan.name in config.adopt.machines,
    }
    if plan.driver is None or isinstance(stated, OperatorDriver | PrecompiledDriver):
        return DriverHostArgs(source="operator", **common)
    return DriverHostArgs(
        version=plan.driver.version,
        modules="open" if plan.driver.modules is ModulesPolicy.OPEN else "proprietary",
        packages=plan.driver.packages.value,
        nvswitch=plan.driver.nvswitch,
        may_reboot=plan.driver.reboot is RebootPolicy.ALLOW,
        **common,
    )


def cluster(
    config: Rke2Config,
    secrets: Secrets,
    connections: Mapping[str, HostConnection],
    ready: Mapping[str, Sequence[pulumi.Resource]],
    *,
    address: str,
) -> Rke2Cluster:
    """The cluster.

    Args:
        config: the section.
        secrets: with the tokens and the registries' passwords.
        connections: by machine.
        ready: what a machine waits for before it joins, by its name.
        address: fixed address of the servers.
    """
    plans = machines(config)
    files = _registries(config, secrets)
    hosts = {
        plan.name: Rke2Host(
            connection=connections[plan.name],
            labels=plan.labels,
            taints=plan.taints,
            files=files,
            requires=ready.get(plan.name, ()),
        )
        for plan in plans
    }
    return Rke2Cluster(
        config.name,
        Rke2ClusterArgs(
            version=config.version,
            artifacts=rke2_settings.artifacts(config),
            settings=rke2_cluster_plan.settings(config, registration_address=address),
            servers=[hosts[plan.name] for plan in plans if plan.role is Role.SERVER],
            agents=[hosts[plan.name] for plan in plans if plan.role is Role.AGENT],
            agents_at_once=config.agents_at_once,
            server_token=secrets.server_token,
            agent_token=secrets.agent_token,
            join_timeout_seconds=config.join_timeout_seconds,
            drain_timeout_seconds=config.drain_timeout_seconds,
            adopt=config.adopt.machines,
        ),
    )


def _registries(config: Rke2Config, secrets: Secrets) -> Mapping[str, pulumi.Input[str]]:
    """`registries.yaml` with passwords, where registries want them."""
    if secrets.registry_credentials is None:
        return {}

    def document(text: str) -> str:
        try:
            found = rke2_cluster_plan.registries(config, yaml.safe_load(text))
        except (ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
            # Nothing of what could not be read: it may be the password.
            said = (
                str(error)
                if type(error) is ValueError
                else "it is not username and password by name"
            )
            raise pulumi.RunError(f"the secret registry-credentials: {said}") from None
        return rke2_config.document(found)

    # It is made of a secret, and is one.
    return {rke2.REGISTRIES: secrets.registry_credentials.apply(document)}
