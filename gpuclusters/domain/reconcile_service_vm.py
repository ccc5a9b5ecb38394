"""Bring a host's service VM to what is wanted: read, compare, then act; may be interrupted anywhere.

Nothing that could take links from under a guest is done while a GPU is held: a restart of the VM, or a new
disk, which loses what the switches were told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.domain import adoption_host, domain_xml, service_vm_health
from gpuclusters.domain.fabric_state import FabricError
from gpuclusters.domain.ports import FabricManager, PciDevices
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.service_vm import ServiceVmInputs
from gpuclusters.domain.service_vm_guest import Guest
from gpuclusters.domain.service_vm_health import Health
from gpuclusters.domain.service_vm_port import ServiceVmHost
from gpuclusters.domain.service_vm_state import LiveVm, VmPlan, WantedVm, compare, is_ours, wanted

# One command on a host may take a minute; a download goes on in the next one.
DOWNLOAD_SECONDS = 40
SHUTDOWN_SECONDS = 30


@dataclass(frozen=True, slots=True)
class ServiceVmPorts:
    """What a change of the VM needs."""

    host: ServiceVmHost
    fabric: FabricManager
    pci: PciDevices
    clock: Clock
    reporter: Reporter


@dataclass(frozen=True, slots=True)
class Outcome:
    """The VM as it is after the step."""

    live: LiveVm
    health: Health
    drift: tuple[str, ...] = ()
    guest: Guest = field(default_factory=lambda: Guest("it does not run"))
    """What the VM says of itself over SSH."""


def ensure(
    vm: ServiceVmInputs, ports: ServiceVmPorts, scripts: Mapping[str, str], *, known: bool
) -> Outcome:
    """Make the VM what the inputs say, and wait until its fabric manager serves.

    Args:
        vm: the inputs.
        ports: the host.
        scripts: text of the files of `scripts/service-vm` by name.
        known: whether this resource made the VM before.

    Raises:
        RefusalError: the domain is another's, or a GPU is held while the VM would have to restart; nothing
            was changed then. Or libvirt cannot be asked, or the fabric manager does not serve.
        AdapterError: the host was not reached, or a step failed there; run again.
    """
    want = wanted(vm, scripts)
    live = _asked(ports.host)
    place = f"{ports.host.place}: service VM {vm.name}"
    if live.domain is not None and not is_ours(live) and not known and not vm.adopt:
        raise RefusalError(
            place,
            "a domain of that name is there and is not ours (it lacks our mark in its metadata)",
            f"give it another name, remove it (`virsh undefine --nvram {vm.name}`), or set "
            "adopt: true to take it over",
        )
    plan = compare(want, live)
    _require_unused(vm, ports, plan, live)
    if known and not plan.empty:
        for words in plan.words:
            ports.reporter.note(f"{place}: {words}; put right")
    _act(want, plan, live, ports)
    health = service_vm_health.wait(vm, ports.host, ports.fabric, ports.clock)
    guest = ports.host.ask_guest()
    if guest.version and guest.version != vm.fabric_manager.version:
        raise RefusalError(
            place,
            f"the fabric manager that is installed in it is {guest.version}, not "
            f"{vm.fabric_manager.version}: somebody has changed it since the VM was made",
            f"install {vm.fabric_manager.version} in the VM, or set the versions of fabric manager and guest "
            "driver to that",
        )
    if not guest.answered:
        ports.reporter.note(
            f"{place}: does not let its host in over SSH ({guest.problem}); the version of the fabric "
            "manager is what its console says"
        )
    live = _asked(ports.host)
    return Outcome(live, health, compare(want, live).words, guest)


def differences(
    vm: ServiceVmInputs, host: ServiceVmHost, scripts: Mapping[str, str]
) -> tuple[str, ...]:
    """In words, how a domain that is there is not what is declared; empty if there is none.

    Raises:
        RefusalError: libvirt cannot be asked.
        AdapterError: the host was not reached.
    """
    return tuple(adoption_host.service_vm(wanted(vm, scripts), _asked(host)))


def observe(
    vm: ServiceVmInputs, ports: ServiceVmPorts, scripts: Mapping[str, str]
) -> Outcome | None:
    """What is live now, without changing it; None if there is no domain.

    Raises:
        RefusalError: libvirt cannot be asked.
        AdapterError: the host was not reached.
    """
    live = _asked(ports.host)
    if live.domain is None:
        return None
    plan = compare(wanted(vm, scripts), live)
    words = list(plan.words)
    if not live.running:
        return Outcome(live, Health.STOPPED, tuple(words))
    health, said = service_vm_health.ask(ports.fabric)
    if health not in {Health.READY, Health.WAITING}:
        words.append(f"the fabric manager does not serve: {said}")
    guest = ports.host.ask_guest()
    if guest.version and guest.version != vm.fabric_manager.version:
        words.append(
            f"the fabric manager in the VM is {guest.version} instead of {vm.fabric_manager.version}"
        )
    return Outcome(live, health, tuple(words), guest)


def remove(vm: ServiceVmInputs, ports: ServiceVmPorts) -> None:
    """Shut the VM down and remove it with its disk, seed, keys, network and units; absent is fine.

    Raises:
        RefusalError: partitions are active or a GPU is held (row 24), or the domain is another's; nothing was
            changed then.
        AdapterError: the host was not reached, or a step failed there; run again.
    """
    host = ports.host
    live = _asked(host)
    place = f"{host.place}: service VM {vm.name}"
    if live.domain is not None and not is_ours(live):
        raise RefusalError(
            place,
            "the domain was replaced by one that is not ours, so it is not removed",
            "remove it by hand if nothing needs it, then destroy again",
        )
    holders = _holders(vm, ports)
    if holders:
        raise RefusalError(
            place,
            f"cannot be removed while GPUs are in use: {holders}",
            "end the leases (or stop the VMs) that hold them, then destroy again",
        )
    active = _active(ports.fabric) if live.running else ()
    if active:
        raise RefusalError(
            place,
            f"cannot be removed while partitions are active: {', '.join(map(str, active))}; nobody could "
            "deactivate them any more",
            "destroy leases and partitions first, or deactivate each with `fmpm -d ID`",
        )
    _end(vm, ports, live)
    network = domain_xml.parse(live.network or "")
    bridge = None if network is None else network.find("bridge")
    host.remove(network=bridge is not None and bridge.get("name") == vm.network.bridge)


def _asked(host: ServiceVmHost) -> LiveVm:
    live = host.look()
    if live.problem is not None:
        raise RefusalError(
            host.place,
            f"libvirt cannot be asked ({live.problem})",
            "start it (`systemctl start libvirtd`), and see that the packages of libvirt and QEMU are "
            "installed",
        )
    return live


def _require_unused(vm: ServiceVmInputs, ports: ServiceVmPorts, plan: VmPlan, live: LiveVm) -> None:
    loses_state = bool(plan.disk) and live.backing is not None
    if not plan.restart and not loses_state:
        return
    holders = _holders(vm, ports)
    if holders:
        raise RefusalError(
            f"{ports.host.place}: service VM {vm.name}",
            f"would have to restart ({'; '.join(plan.restart) or plan.disk}) while GPUs are in use: "
            f"{holders}",
            "wait until those leases end or take the host out of service, then run again",
        )


def _holders(vm: ServiceVmInputs, ports: ServiceVmPorts) -> str:
    """Who holds GPUs of the board, in words; empty if nobody does."""
    if not vm.gpus:
        return ""
    found = ports.pci.inspect(list(vm.gpus.values()))
    return ", ".join(
        f"GPU {module} ({address}) by process {', '.join(map(str, found[address].users))}"
        for module, address in sorted(vm.gpus.items())
        if found[address].users
    )


def _active(fabric: FabricManager) -> tuple[int, ...]:
    """Active partitions; none where the fabric manager does not serve and so has none to lose."""
    try:
        table = fabric.partitions()
    except FabricError:
        return ()
    return tuple(sorted(p.id for p in table.values() if p.active))


def _act(want: WantedVm, plan: VmPlan, live: LiveVm, ports: ServiceVmPorts) -> None:
    vm, host = want.vm, ports.host
    if plan.image:
        _fetch(vm, ports)
    if plan.files or plan.units or plan.stale:
        host.install({path: want.files[path] for path in plan.files}, want.executable)
    if plan.seed:
        host.write_seed(want.seed)
    if plan.restart:
        # Asked again: a VM may have started since.
        _require_unused(vm, ports, plan, live)
        _end(vm, ports, live)
    if plan.network:
        host.define_network(domain_xml.text(want.network))
    if plan.disk:
        host.make_disk()
    if plan.domain or plan.autostart:
        host.define_domain(domain_xml.text(want.domain))
    if plan.start or plan.restart:
        host.start()


def _fetch(vm: ServiceVmInputs, ports: ServiceVmPorts) -> None:
    deadline = ports.clock.now() + vm.download_timeout_seconds
    before = ""
    while (so_far := ports.host.fetch_image(DOWNLOAD_SECONDS)) is not None:
        if ports.clock.now() >= deadline or so_far == before:
            raise RefusalError(
                ports.host.place,
                f"the image {vm.image.url} is not there yet: {so_far}",
                "check the host's way to it; the download goes on where it ended when this is run again",
            )
        before = so_far


def _end(vm: ServiceVmInputs, ports: ServiceVmPorts, live: LiveVm) -> None:
    """Shut the VM down, and take its power if it does not obey in time."""
    if not live.running:
        return
    left = vm.shutdown_timeout_seconds
    while left > 0:
        patience = min(SHUTDOWN_SECONDS, left)
        if ports.host.shut_down(patience):
            return
        left -= patience
    ports.reporter.note(
        f"{ports.host.place}: service VM {vm.name} did not shut down within "
        f"{vm.shutdown_timeout_seconds} s; switched off"
    )
    ports.host.power_off()
