"""`doctor`: every machine of a stack at once, over one connection each, as `up` would find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from gpuclusters.cli import doctor_workstation as workstation
from gpuclusters.cli.diagnosis import Diagnosis, failure, of_findings, unreachable, well
from gpuclusters.cli.doctor_stack import StackSecrets
from gpuclusters.cli.reach import connection
from gpuclusters.config import usernetes_plan
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.inventory import Inventory, InventoryError, resolve_machines
from gpuclusters.config.plan import expects
from gpuclusters.config.rke2_cluster import HostDriver, Rke2Config, machine_names
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.core.errors import AdapterError
from gpuclusters.core.finding import Finding, Level
from gpuclusters.driver import decide as driver
from gpuclusters.driver.host import inspect
from gpuclusters.host.connect import find_credentials
from gpuclusters.host.model import HostConnection
from gpuclusters.host.ssh import SshHost
from gpuclusters.preflight.decide import judge, of_level, stage_of
from gpuclusters.preflight.host import read_facts
from gpuclusters.preflight.model import Expects, HostFacts, Stage
from gpuclusters.rke2 import decide as rke2
from gpuclusters.rke2.host import inspect as inspect_rke2
from gpuclusters.rke2.model import LiveHost
from gpuclusters.rke2.releases import Role, parse_version
from gpuclusters.rootless import decide as rootless
from gpuclusters.rootless.host import RootlessCapability
from gpuclusters.rootless.model import LiveRootless, RootlessHostInputs

CREDENTIALS = "credentials"
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Seen:
    """What a machine says."""

    findings: Sequence[Finding]
    summary: str = ""
    """What it is, in a few words; empty where something keeps it from being that."""
    machine_id: str = ""
    """systemd's; empty where nobody asked."""


Look = Callable[[SshHost], Seen]
"""At one machine; raises AdapterError."""


def of_stack(
    section: CaasConfig | Rke2Config | UsernetesConfig,
    inventory: Inventory | None,
    secrets: StackSecrets,
) -> Iterator[Diagnosis]:
    """The machines that exist already, or are simulated; those on Google Cloud the state alone knows."""
    hosts = section.hosts
    if isinstance(hosts, GcpHosts):
        yield well(workstation.LAB, "the machines are made by the stack; see its outputs")
        return
    key, source = secrets.values.get("ssh-private-key"), ""
    if isinstance(hosts, LabHosts):
        if inventory is None:
            return  # the lab does not run, which was said
        key, source = inventory.ssh_private_key.read_text(encoding="utf-8"), "the lab"
    elif not secrets.readable:
        return
    looks = _looks(section)
    try:
        resolved = resolve_machines(list(looks), hosts, inventory)
    except InventoryError as error:
        yield failure(workstation.LAB, str(error), error.error_id, "`gpu-clusters lab start`")
        return
    found = [(connection(host), looks[name]) for name, host in resolved.items() if host is not None]
    yield from examine(found, key, source)


def _looks(section: CaasConfig | Rke2Config | UsernetesConfig) -> Mapping[str, Look]:
    if isinstance(section, CaasConfig):
        manager = str(section.service_vm.bind_address)
        return {node.name: caas_host(expects(section, node), manager) for node in section.nodes}
    if isinstance(section, Rke2Config):
        return {name: rke2_host(section, name) for name in machine_names(section)}
    return dict.fromkeys(usernetes_plan.machine_names(section), usernetes_host(section))


def examine(
    machines: Sequence[tuple[HostConnection, Look]], private_key: str | None, source: str = ""
) -> Iterator[Diagnosis]:
    """All machines in parallel: one that does not answer costs its time-out once."""
    try:
        credentials = find_credentials(private_key)
        credentials.keys()
    except AdapterError as error:
        yield unreachable(CREDENTIALS, error)
        return
    yield well(CREDENTIALS, f"SSH key from {source or credentials.source}")

    def ask(one: tuple[HostConnection, Look]) -> Seen | AdapterError:
        try:
            return one[1](SshHost(one[0], credentials, connect_attempts=1))
        except AdapterError as error:
            return error

    ids: dict[str, str] = {}
    with ThreadPoolExecutor(max(1, min(len(machines), _AT_ONCE))) as pool:
        for (reached, _), seen in zip(machines, pool.map(ask, machines), strict=True):
            name = reached.host
            if isinstance(seen, AdapterError):
                yield failure(name, seen.problem, seen.error_id, seen.remedy)
                continue
            if seen.summary:
                yield well(name, seen.summary)
            yield from of_findings(name, seen.findings)
            other = ids.setdefault(seen.machine_id, name) if seen.machine_id else name
            if other != name:
                text = f"is the same machine as {other} (machine-id {seen.machine_id})"
                fix = (
                    "correct the address of one; if both were cloned from one image, "
                    "`rm /etc/machine-id; systemd-machine-id-setup` on one"
                )
                yield failure(name, text, "doctor.same-machine", fix)


def caas_host(wanted: Expects, fabric_manager: str | None) -> Look:
    """A host of virtual machines: what the preflight finds."""

    def look(host: SshHost) -> Seen:
        facts: HostFacts = read_facts(host, wanted.functions, fabric_manager=fabric_manager)
        stage = stage_of(facts, wanted)
        found = judge(facts, wanted, stage)
        state = "prepared" if stage is Stage.PREPARED else "bare, can be prepared"
        there = sum(address in facts.functions for address in wanted.gpus.values())
        said = f"{state}: {there} GPUs, {facts.memory_kib // 2**20} GiB, Linux {facts.kernel}"
        return Seen(found, "" if of_level(Level.BLOCK, found) else said, facts.machine_id)

    return look


def rke2_host(config: Rke2Config, name: str) -> Look:
    """A host of RKE2: its release, and the driver where its pool has GPUs."""
    counts = (pool.gpu.count for pool in config.pools if pool.gpu and name in pool.nodes)
    count = next(counts, 0)

    def look(host: SshHost) -> Seen:
        live = inspect_rke2(host, [])
        found = [*_of_rke2(config, name, live)]
        said = f"RKE2 {live.version}" if live.version else "bare, can be prepared"
        if count:
            gpus = inspect(host)
            found += driver.gpu_count(len(gpus.gpu), count, seen_by="the PCI bus")
            found += driver.running(gpus, own=isinstance(config.driver, HostDriver))
            said += f", {len(gpus.gpu)} GPUs, driver {gpus.loaded or 'none yet'}"
        return Seen(found, "" if found else said)

    return look


def _of_rke2(config: Rke2Config, name: str, live: LiveHost) -> Iterator[Finding]:
    """What `up` would find on a machine, and what it would put right."""
    role = Role.SERVER if name in config.servers else Role.AGENT
    yield from rke2.machine(live, selinux=config.selinux)
    if live.version:
        yield from rke2.release(live, parse_version(config.version))
        yield from rke2.unit(role, live)
    elif not live.owner:
        yield from rke2.bare_machine(role, live)
    yield from rke2.certificate(role, live)


def usernetes_host(config: UsernetesConfig) -> Look:
    """A host with rootless Docker."""
    versions = usernetes_plan.versions(config)
    installs_driver = usernetes_plan.driver(config) is not None

    def look(host: SshHost) -> Seen:
        inputs = RootlessHostInputs(
            connection=host.connection,
            account=config.account,
            gpus=config.gpus.count,
            docker=versions.docker,
            container_toolkit=versions.container_toolkit,
            sudo=usernetes_plan.uses_sudo(config),
            ports=usernetes_plan.tcp_ports(config),
        )
        live = RootlessCapability(inputs, host).observe()
        return of_rootless(inputs, live, installs_driver=installs_driver)

    return look


def of_rootless(inputs: RootlessHostInputs, live: LiveRootless, *, installs_driver: bool) -> Seen:
    """What is to be said of a host; nothing more while `up` has to install the driver first."""
    if installs_driver and not live.module:
        return Seen((), "no driver yet, can be prepared")
    found = list(rootless.findings(inputs, live))
    blocking = [one for one in found if one.level is Level.BLOCK]
    if blocking:
        return Seen(blocking)
    gpus = f"{len(live.gpu)} GPUs"
    if rootless.is_absent(inputs, live):
        return Seen((), f"driver {live.module}, {gpus}, can be prepared")
    engine = live.docker_info.version
    return Seen(found, "" if found else f"rootless Docker {engine}, {gpus}, driver {live.module}")
