"""`doctor`: the machines of an `rke2` cluster, each as it is: reachable, its driver, its RKE2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpuclusters.cli import doctor_machines
from gpuclusters.cli.diagnosis import Diagnosis, failure, of_findings, well
from gpuclusters.cli.doctor_stack import StackSecrets
from gpuclusters.config.inventory import Inventory, ResolvedHost
from gpuclusters.config.rke2_cluster import HostDriver, Rke2Config, machine_names
from gpuclusters.core.errors import AdapterError
from gpuclusters.core.finding import Finding
from gpuclusters.driver import decide as driver
from gpuclusters.driver.host import inspect
from gpuclusters.driver.model import LiveDriver
from gpuclusters.host.connect import SshCredentials
from gpuclusters.host.ssh import SshHost
from gpuclusters.rke2 import decide
from gpuclusters.rke2.host import SshRke2Host
from gpuclusters.rke2.model import LiveHost
from gpuclusters.rke2.releases import Role, parse_version


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a machine should be."""

    role: Role
    version: str
    """Release of RKE2."""
    selinux: bool
    gpus: int
    host_driver: bool
    """Whether the driver is the host's own."""


def examine(
    config: Rke2Config, inventory: Inventory | None, secrets: StackSecrets
) -> Iterator[Diagnosis]:
    """All machines, each as it is."""
    wanted = _wanted(config)
    yield from doctor_machines.examine(
        config.hosts,
        machine_names(config),
        inventory,
        secrets,
        lambda machine, credentials: _look(machine, wanted[machine.name], credentials),
    )


def _wanted(config: Rke2Config) -> dict[str, Wanted]:
    gpus = {
        node: pool.gpu.count for pool in config.pools if pool.gpu is not None for node in pool.nodes
    }
    own = isinstance(config.driver, HostDriver)
    return {
        name: Wanted(
            Role.SERVER if name in config.servers else Role.AGENT,
            config.version,
            config.selinux,
            gpus.get(name, 0),
            own,
        )
        for name in machine_names(config)
    }


def _look(machine: ResolvedHost, wanted: Wanted, credentials: SshCredentials) -> list[Diagnosis]:
    host = SshHost(doctor_machines.connection(machine), credentials, connect_attempts=1)
    try:
        rke2 = SshRke2Host(host).inspect([])
        gpus = inspect(host) if wanted.gpus else None
    except AdapterError as error:
        return [failure(machine.name, error.problem, error.remedy, error.error_id)]
    problems = [*of_findings(machine.name, of_rke2(rke2, wanted))]
    if gpus is not None:
        problems += of_driver(machine.name, gpus, wanted)
    if problems:
        return problems
    release = f"RKE2 {rke2.version}" if rke2.version else "bare, can be prepared"
    with_gpus = f", {len(gpus.gpu)} GPUs, driver {gpus.loaded or 'none yet'}" if gpus else ""
    return [well(machine.name, release + with_gpus)]


def of_rke2(live: LiveHost, wanted: Wanted) -> Iterator[Finding]:
    """What `up` would find on a machine, and what it would put right."""
    yield from decide.machine(live, selinux=wanted.selinux)
    if not live.version and not live.owner:
        yield from decide.bare_machine(wanted.role, live)
    elif live.version:
        yield from decide.release(live, parse_version(wanted.version))
        yield from decide.unit(wanted.role, live)
    yield from decide.certificate(wanted.role, live)


def of_driver(name: str, live: LiveDriver, wanted: Wanted) -> Iterator[Diagnosis]:
    """What is not well about the GPUs of a machine and their driver."""
    found = [*driver.gpu_count(len(live.gpu), wanted.gpus, seen_by="the PCI bus")]
    yield from of_findings(name, [*found, *driver.running(live, own=wanted.host_driver)])
