"""`doctor`: the hosts of a `usernetes` cluster, each as it is: reachable, its driver, its rootless Docker."""

from __future__ import annotations

from collections.abc import Iterator

from gpuclusters.cli import doctor_machines
from gpuclusters.cli.diagnosis import Diagnosis, failure, of_findings, well
from gpuclusters.cli.doctor_stack import StackSecrets
from gpuclusters.config import usernetes_plan
from gpuclusters.config.inventory import Inventory, ResolvedHost
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.core.converge import StderrReporter
from gpuclusters.core.errors import AdapterError
from gpuclusters.core.finding import Level
from gpuclusters.host.connect import SshCredentials
from gpuclusters.host.ssh import SshHost
from gpuclusters.rootless import decide
from gpuclusters.rootless.host import RootlessCapability
from gpuclusters.rootless.model import LiveRootless, RootlessHostInputs


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
        live = RootlessCapability(inputs, host, StderrReporter()).observe()
    except AdapterError as error:
        return [failure(machine.name, error.problem, error.remedy, error.error_id)]
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
    found = list(decide.findings(inputs, live))
    blocking = [one for one in found if one.level is Level.BLOCK]
    if blocking:
        yield from of_findings(name, blocking)
    elif decide.is_absent(inputs, live):
        yield well(name, f"driver {live.module}, {len(live.gpu)} GPUs, can be prepared")
    elif found:
        yield from of_findings(name, found)
    else:
        engine = live.docker_info.version
        yield well(name, f"rootless Docker {engine}, {len(live.gpu)} GPUs, driver {live.module}")
