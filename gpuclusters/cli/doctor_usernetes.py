"""`doctor`: the hosts of a `usernetes` cluster, each as it is: reachable, its driver, its rootless Docker."""

from __future__ import annotations

from collections.abc import Iterator

from gpuclusters.adapters.credentials import SshCredentials
from gpuclusters.adapters.errors import AdapterError
from gpuclusters.adapters.rootless_host import SshRootlessHost
from gpuclusters.adapters.ssh import SshHost
from gpuclusters.cli import doctor_machines
from gpuclusters.cli.diagnosis import Diagnosis, failure, warning, well
from gpuclusters.cli.doctor_hosts import error_name
from gpuclusters.cli.doctor_stack import StackSecrets
from gpuclusters.config import usernetes_plan
from gpuclusters.config.inventory import Inventory, ResolvedHost
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.domain import reconcile_rootless, rootless_missing, rootless_refusals
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.rootless_facts import LiveRootless
from gpuclusters.domain.rootless_inputs import RootlessHostInputs


def examine(
    config: UsernetesConfig, inventory: Inventory | None, secrets: StackSecrets
) -> Iterator[Diagnosis]:
    """All hosts, each as it is."""
    yield from doctor_machines.examine(
        config.hosts,
        usernetes_plan.machine_names(config),
        inventory,
        secrets,
        lambda machine, credentials: _look(config, machine, credentials),
    )


def _look(
    config: UsernetesConfig, machine: ResolvedHost, credentials: SshCredentials
) -> list[Diagnosis]:
    versions = usernetes_plan.versions(config)
    inputs = RootlessHostInputs(
        connection=doctor_machines.connection(machine),
        account=config.account,
        gpus=config.gpus.count,
        docker=versions.docker,
        container_toolkit=versions.container_toolkit,
        sudo=usernetes_plan.uses_sudo(config),
        ports=usernetes_plan.tcp_ports(config),
    )
    host = SshHost(inputs.connection, credentials, connect_attempts=1)
    try:
        live = SshRootlessHost(host, inputs).inspect()
    except AdapterError as error:
        return [failure(machine.name, error.problem, error.remedy, error_name(error))]
    installs = usernetes_plan.driver(config) is not None
    return list(of_host(inputs, live, installs_driver=installs))


def of_host(
    inputs: RootlessHostInputs, live: LiveRootless, *, installs_driver: bool
) -> Iterator[Diagnosis]:
    """What is to be said of one host.

    Args:
        inputs: what it should be.
        live: what it is.
        installs_driver: whether `up` installs the driver before anything else is looked at.
    """
    name = inputs.connection.host
    if installs_driver and not live.module:
        yield well(name, "no driver yet, can be prepared")
        return
    lacks = rootless_missing.missing(inputs, live)
    try:
        rootless_refusals.before_changing(inputs, live, lacks)
    except RefusalError as refusal:
        yield failure(name, refusal.problem, refusal.remedy, "rootless.refused")
        return
    if not reconcile_rootless.is_there(inputs, live):
        yield well(name, f"driver {live.module}, {len(live.gpus)} GPUs, can be prepared")
        return
    problems = reconcile_rootless.drift(inputs, live)
    for problem in problems:
        yield warning(name, problem, "`gpu-clusters up --refresh` puts it back", "rootless.drift")
    if not problems:
        engine = live.engine.version
        yield well(name, f"rootless Docker {engine}, {len(live.gpus)} GPUs, driver {live.module}")
