"""Rows 3 and 4: the settings of the fabric manager, and the devices of its VM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fabric import FabricMode
from gpuclusters.config.fault import NOTHING, finding, show
from gpuclusters.config.plan import board, preset
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Path
from gpuclusters.domain.platforms import SwitchAccess
from gpuclusters.fabric.table import Board, repeated
from gpuclusters.tenancy.isolation import FABRIC_MANAGER_PORT
from gpuclusters.tenancy.ranges import containing

_SSH_PORT = 22
_STATE_FILE_LENGTH = 256
_LOST_AT_REBOOT = ("/tmp", "/var/tmp", "/run", "/var/run", "/dev/shm")  # noqa: S108 - refused


@rule(3, "caas.fabric-mode")
def fabric_mode_is_shared(config: CaasConfig) -> Iterable[Finding]:
    mode = config.service_vm.fabric_mode
    if mode is not FabricMode.SHARED:
        yield finding(
            ("service-vm", "fabric-mode"),
            "gives the whole board to one owner, while a caas cluster shares it",
            show(int(mode)),
            "write 1, or leave it out",
        )


@rule(3, "caas.fabric-state-lost")
def state_survives_a_restart(config: CaasConfig) -> Iterable[Finding]:
    vm = config.service_vm
    path: Path = ("service-vm", "state-file")
    if vm.state_file is None:
        if vm.fabric_mode_restart:
            yield finding(
                path,
                "is missing while fabric-mode-restart is true",
                NOTHING,
                "write a path on a disk of the service VM: /var/lib/nvidia-fabricmanager/state",
            )
        return
    file = PurePosixPath(vm.state_file)
    if not file.is_absolute() or ".." in file.parts or vm.state_file.endswith("/"):
        yield finding(
            path,
            "is not the absolute path of a file",
            show(vm.state_file),
            "write for example /var/lib/nvidia-fabricmanager/state",
        )
    elif any(file.is_relative_to(lost) for lost in _LOST_AT_REBOOT):
        yield finding(
            path,
            "is lost when the service VM reboots, and with it which partitions are in use",
            show(vm.state_file),
            "write a path on a disk: /var/lib/nvidia-fabricmanager/state",
        )
    if len(vm.state_file) > _STATE_FILE_LENGTH:
        yield finding(
            path,
            f"is longer than the {_STATE_FILE_LENGTH} characters that the fabric manager reads",
            f"{len(vm.state_file)} characters",
            "write a shorter path",
        )


@rule(3, "caas.fabric-manager-exposed")
def fabric_manager_listens_to_its_host_alone(config: CaasConfig) -> Iterable[Finding]:
    address = config.service_vm.bind_address
    path: Path = ("service-vm", "bind-address")
    remedy = "write the service VM's address on the network that it shares with its host alone"
    got = show(str(address))
    ranges = {
        "kubernetes.pod-cidr": config.kubernetes.pod_cidr,
        "kubernetes.service-cidr": config.kubernetes.service_cidr,
    }
    if address.is_unspecified:
        yield finding(path, "listens on every network, tenants' among them", got, remedy)
    elif address.is_loopback:
        yield finding(path, "can be reached from inside the service VM only", got, remedy)
    elif address.is_multicast or address.is_link_local or address.is_reserved:
        yield finding(path, "is not an address that a VM listens on", got, remedy)
    for key, network in ranges.items():
        if containing(address, [network]):
            yield finding(path, f"is in {key} ({network}), where tenants are", got, remedy)


@rule(3, "caas.service-vm-port")
def ports_do_not_clash(config: CaasConfig) -> Iterable[Finding]:
    vm = config.service_vm
    if vm.port != FABRIC_MANAGER_PORT:
        yield finding(
            ("service-vm", "port"),
            "is a port that fmpm, which has no option for it, never connects to",
            show(vm.port),
            f"write {FABRIC_MANAGER_PORT}, or leave it out",
        )
    if vm.port == vm.internal_port:
        yield finding(
            ("service-vm", "internal-port"),
            "is also the port of the API",
            show(vm.internal_port),
            "write another, or leave it out for 16000",
        )
    if vm.internal_port == _SSH_PORT:
        yield finding(
            ("service-vm", "internal-port"),
            "is the port of the service VM's SSH server",
            show(vm.internal_port),
            "write another, or leave it out for 16000",
        )


@rule(4, "caas.gpu-address-missing", each=["nodes"])
def all_gpus_have_addresses(config: CaasConfig) -> Iterable[Finding]:
    for position, node in enumerate(config.nodes):
        known = board(config, node).gpus
        missing = [module for module in range(1, 9) if module not in known]
        if missing and node.gpus is None:
            yield finding(
                ("nodes", position, "gpus"),
                f"is missing, and the preset of {config.platform} knows no PCI addresses",
                NOTHING,
                'write the address of each module: {"1": "0000:1b:00.0", …}',
            )
        elif missing:
            yield finding(
                ("nodes", position, "gpus"),
                f"has no address for modules {', '.join(map(str, missing))}",
                f"modules {', '.join(map(str, sorted(known)))}" if known else "an empty mapping",
                "write all eight, as `nvidia_gpu_tools.py --query-module-name` reports them",
            )


@rule(4, "caas.switches-incomplete", each=["nodes"])
def the_service_vm_has_all_switches(config: CaasConfig) -> Iterable[Finding]:
    known = preset(config)
    bridged = known.switch_access is SwitchAccess.CONNECTX_BRIDGE
    for position, node in enumerate(config.nodes):
        its = board(config, node)
        if bridged:
            yield from _bridges(position, its, known.fabric_functions, config.platform)
        elif len(its.switches) != known.fabric_functions:
            yield finding(
                ("nodes", position, "switches"),
                f"are not the {known.fabric_functions} NVSwitches of {known.baseboard}",
                show(node.switches) if its.switches else NOTHING,
                f"write the PCI addresses of all {known.fabric_functions} (10de:22a3): without one "
                "of them the fabric manager does not start",
            )


def _bridges(position: int, its: Board, count: int, platform: str) -> Iterator[Finding]:
    if its.switches:
        yield finding(
            ("nodes", position, "switches"),
            f"cannot be passed through: on {platform} the NVSwitches have no PCI function",
            show(its.switches),
            "remove it, and write the ConnectX-7 functions that manage them as extra-functions; "
            "the service VM runs nvlsm before the fabric manager",
        )
    if len(its.extra_functions) != count:
        yield finding(
            ("nodes", position, "extra-functions"),
            f"are not the {count} ConnectX-7 functions that manage the NVSwitches",
            show(its.extra_functions) if its.extra_functions else NOTHING,
            f"write the PCI addresses of the {count} functions whose VPD says SW_MNG",
        )


@rule(4, "caas.iommu-group-incomplete", each=["nodes"])
def the_service_vm_has_the_whole_group(config: CaasConfig) -> Iterable[Finding]:
    known = preset(config)
    if not known.extra_functions:
        return
    for position, node in enumerate(config.nodes):
        if len(board(config, node).extra_functions) < len(known.extra_functions):
            yield finding(
                ("nodes", position, "extra-functions"),
                f"lacks the function {known.extra_pci_id} that shares the switches' IOMMU group",
                show(node.extra_functions or []),
                f"write its PCI address, usually {', '.join(known.extra_functions)}, "
                "or leave the key out",
            )


@rule(4, "caas.pci-function-twice", each=["nodes"])
def no_function_has_two_owners(config: CaasConfig) -> Iterable[Finding]:
    for position, node in enumerate(config.nodes):
        its = board(config, node)
        gpus = {address: module for module, address in sorted(its.gpus.items(), reverse=True)}
        for module, address in sorted(its.gpus.items()):
            if gpus[address] != module:
                yield finding(
                    ("nodes", position, "gpus", str(module)),
                    f"is also the address of module {gpus[address]}",
                    show(address),
                    "write the address of this module's GPU",
                )
        for key, addresses in (
            ("switches", its.switches),
            ("extra-functions", its.extra_functions),
        ):
            for address in repeated(addresses):
                yield finding(
                    ("nodes", position, key),
                    "lists a function twice",
                    show(address),
                    "list it once",
                )
            for address in dict.fromkeys(addresses):
                if address in gpus:
                    yield finding(
                        ("nodes", position, key),
                        f"holds the address of GPU module {gpus[address]}: the service VM and a "
                        "tenant cannot have the same function",
                        show(address),
                        "write the address of the switch or bridge",
                    )
        for address in dict.fromkeys(its.switches):
            if address in its.extra_functions:
                yield finding(
                    ("nodes", position, "extra-functions"),
                    "holds a function that is also under switches",
                    show(address),
                    "list it once",
                )
