"""`doctor`: the machines of an `rke2` cluster, each as it is: reachable, its driver, its RKE2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gpuclusters.adapters.credentials import SshCredentials
from gpuclusters.adapters.errors import AdapterError
from gpuclusters.adapters.gpu_driver import SshDriverHost
from gpuclusters.adapters.here import SystemClock
from gpuclusters.adapters.rke2_host import SshRke2Host
from gpuclusters.adapters.ssh import SshHost
from gpuclusters.cli import doctor_machines
from gpuclusters.cli.diagnosis import Diagnosis, failure, of_findings, warning, well
from gpuclusters.cli.doctor_hosts import error_name
from gpuclusters.cli.doctor_stack import StackSecrets
from gpuclusters.config.inventory import Inventory, ResolvedHost
from gpuclusters.config.rke2_cluster import Rke2Config, machine_names
from gpuclusters.config.rke2_cluster_driver import HostDriver
from gpuclusters.domain.gpu_driver import LiveDriver
from gpuclusters.domain.rke2_node import LiveHost
from gpuclusters.driver import decide as driver

_EXPIRES_SOON = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a machine should be."""

    version: str
    """Release of RKE2."""
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
    return {name: Wanted(config.version, gpus.get(name, 0), own) for name in machine_names(config)}


def _look(machine: ResolvedHost, wanted: Wanted, credentials: SshCredentials) -> list[Diagnosis]:
    host = SshHost(doctor_machines.connection(machine), credentials, connect_attempts=1)
    try:
        rke2 = SshRke2Host(host).inspect([])
        gpus = SshDriverHost(host, SystemClock()).inspect() if wanted.gpus else None
    except AdapterError as error:
        return [failure(machine.name, error.problem, error.remedy, error_name(error))]
    problems = list(of_rke2(machine.name, rke2, wanted.version))
    if gpus is not None:
        problems += of_driver(machine.name, gpus, wanted)
    if problems:
        return problems
    release = f"RKE2 {rke2.version}" if rke2.version else "bare, can be prepared"
    with_gpus = f", {len(gpus.gpus)} GPUs, driver {gpus.loaded or 'none yet'}" if gpus else ""
    return [well(machine.name, release + with_gpus)]


def of_rke2(name: str, live: LiveHost, version: str) -> Iterator[Diagnosis]:
    """What is not well about RKE2 on a machine."""
    if live.firewalld:
        text = "firewalld runs, which cuts the pods' network"
        yield failure(name, text, "systemctl disable --now firewalld", "rke2.firewalld")
    if live.nm_cloud_setup:
        text = "nm-cloud-setup is on, which takes the routes of pods away"
        fix = "systemctl disable --now nm-cloud-setup.service nm-cloud-setup.timer, and restart"
        yield failure(name, text, fix, "rke2.nm-cloud-setup")
    if not live.default_route:
        text = "has no default route, without which RKE2 does not start"
        yield failure(name, text, "add one; a dummy interface will do", "rke2.default-route")
    if not live.version:
        return
    if live.version != version:
        text = f"has RKE2 {live.version}, the configuration says {version}"
        yield warning(name, text, "`gpu-clusters up` upgrades it in place", "rke2.version")
    stopped = [role.value for role, state in live.active.items() if state == "failed"]
    if stopped:
        unit = f"rke2-{stopped[0]}"
        yield failure(name, f"{unit} has failed", f"journalctl -u {unit}", "rke2.unit")
    if live.expires:
        end = datetime.fromisoformat(live.expires.replace("Z", "+00:00"))
        if end.replace(tzinfo=end.tzinfo or UTC) - datetime.now(UTC) < _EXPIRES_SOON:
            text = f"its first certificate ends on {live.expires}"
            fix = "restart RKE2 on it: it renews them when it starts"
            yield warning(name, text, fix, "rke2.certificates")


def of_driver(name: str, live: LiveDriver, wanted: Wanted) -> Iterator[Diagnosis]:
    """What is not well about the GPUs of a machine and their driver."""
    counted = driver.gpu_count(len(live.gpus), wanted.gpus, seen_by="the PCI bus")
    yield from of_findings(name, counted)
    if live.nouveau:
        text = "nouveau has the GPUs"
        yield warning(
            name, text, "`gpu-clusters up` takes it away and restarts it", "driver.nouveau"
        )
    if live.loaded and live.smi:
        text = f"nvidia-smi ends with {live.smi}: {live.said or 'nothing said'}"
        fix = "docs/rke2-hosts.md has what each exit status means"
        yield failure(name, text, fix, "driver.nvidia-smi")
    if wanted.host_driver and live.loaded and live.module and live.loaded != live.module:
        text = f"the kernel runs driver {live.loaded}, {live.module} is installed"
        yield warning(name, text, "restart it, or let `gpu-clusters up` do so", "driver.not-loaded")
    if live.reboot_required:
        text = "waits for a restart, most often for another kernel"
        yield warning(name, text, "restart it while it is drained", "driver.restart")
