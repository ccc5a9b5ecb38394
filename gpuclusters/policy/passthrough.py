"""Rules about machines whose GPUs go into virtual machines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpuclusters.cdi import decide as cdi
from gpuclusters.policy.rule import Parameters
from gpuclusters.policy.stack import DYNAMIC, Stack, Subject, Violation

_DRIVER_PACKAGE = re.compile(
    r"(?<![\w-])(?:nvidia-(?:driver|open|kernel|dkms|headless)|cuda-drivers)[\w.=:-]*"
)
_GROUP_NODE = re.compile(r"/dev/vfio/(\d+)")
_CDI_FOLDERS = ("/etc/cdi/", "/var/run/cdi/", "/run/cdi/")
_FAKED = "pcie_acs_override="


def host_driver(stack: Stack, _parameters: Parameters) -> Iterator[Violation]:
    """NVIDIA's driver on a machine that passes its GPUs on."""
    passed = {s.host for s in stack.of(f"{DYNAMIC}VfioBinding")} - {""}
    for subject in stack.there if passed else ():
        says = _loads_driver(subject, on_passed=subject.host in passed)
        if says:
            yield Violation(subject, says)


def _loads_driver(subject: Subject, *, on_passed: bool) -> str:
    host, type_ = subject.host, subject.type
    if type_ == "command:remote:Command":
        found = _DRIVER_PACKAGE.search(str(subject.props.get("create") or ""))
        where = "on a machine of a cluster that passes GPUs to VMs"
        return f"the command installs {found[0]} {where}" if found else ""
    if on_passed and type_.startswith(DYNAMIC) and "Driver" in type_:
        return f"an NVIDIA driver is installed on {host}, which passes its GPUs to VMs"
    if on_passed and type_ == f"{DYNAMIC}HostBoot":
        lists = (a for a in _kernel_arguments(subject) if a.startswith("module_blacklist="))
        loads = any("nvidia" not in argument for argument in lists)
        return f"{host} does not keep the NVIDIA driver from loading" if loads else ""
    return ""


def shared_iommu_group(stack: Stack, _parameters: Parameters) -> Iterator[Violation]:
    """GPUs that the hardware cannot tell apart, in a cluster with more than one tenant."""
    if stack.tenants < 2:
        return
    groups, may = _groups(stack), f"{stack.tenants} tenants may get them"
    owners: dict[tuple[str, str], str] = {}
    for subject in stack.there:
        for name, address in _devices(subject):
            label = f"{name} ({address})"
            here = (subject.host, groups.get((subject.host, address), address))
            other = owners.setdefault(here, label)
            if other != label:
                told = f"group {here[1]}" if here[1] != address else "the same function"
                one_group = f"of {subject.host} are in one IOMMU group ({told})"
                yield Violation(subject, f"{other} and {label} {one_group}, and {may}")
        for one, more, group in _same_nodes(subject):
            where = f"{subject.host or 'one machine'} are one IOMMU group (/dev/vfio/{group})"
            yield Violation(subject, f"the CDI devices {one} and {more} of {where}, and {may}")
        arguments = _kernel_arguments(subject) if subject.type == f"{DYNAMIC}HostBoot" else []
        if faked := [argument for argument in arguments if argument.startswith(_FAKED)]:
            apart = f"makes IOMMU groups of {subject.host} look apart that the hardware does not separate"
            yield Violation(subject, f"{faked[0]} {apart}")
    yield from _with_the_service_vm(stack)


def _with_the_service_vm(stack: Stack) -> Iterator[Violation]:
    gpus = {(one.host, at): name for one in stack.there for name, at in _devices(one)}
    for vm in stack.of(f"{DYNAMIC}ServiceVm"):
        held = [*_texts(vm.props.get("switches")), *_texts(vm.props.get("extra_functions"))]
        for address in held:
            if name := gpus.get((vm.host, address)):
                says = f"the service VM of {vm.host} holds {address}, which tenants get as {name}"
                yield Violation(vm, says)


def _groups(stack: Stack) -> Mapping[tuple[str, str], str]:
    """IOMMU group by host and PCI address, as machines have told."""
    found: dict[tuple[str, str], str] = {}
    for subject in stack.of(f"{DYNAMIC}VfioBinding"):
        told = subject.outputs.get("iommu_groups")
        for address, group in told.items() if isinstance(told, Mapping) else ():
            number = int(group) if isinstance(group, float) and group.is_integer() else group
            found[subject.host, str(address)] = str(number)
    return found


def _devices(subject: Subject) -> Iterator[tuple[str, str]]:
    """Name and PCI address of what a CDI spec hands out."""
    devices = subject.props.get("devices")
    if subject.type == f"{DYNAMIC}CdiSpec" and isinstance(devices, list):
        for device in devices:
            if isinstance(device, Mapping) and isinstance(device.get("pci_address"), str):
                yield f"{subject.props.get('kind')}={device.get('name')}", device["pci_address"]


def _same_nodes(subject: Subject) -> Iterator[tuple[str, str, str]]:
    """Devices of a CDI file that name one VFIO group: in a file that we keep, or in one made by hand."""
    path = str(subject.props.get("path") or "")
    if subject.type == f"{DYNAMIC}CdiSpec":
        content = subject.outputs.get("content")
    elif subject.type == f"{DYNAMIC}HostFile" and path.startswith(_CDI_FOLDERS):
        content = subject.props.get("content")
    else:
        return
    owners: dict[str, str] = {}
    for name, group in _nodes(content):
        if owners.setdefault(group, name) != name:
            yield owners[group], name, group


def _nodes(content: Any) -> Iterator[tuple[str, str]]:
    try:
        document = cdi.parse(content.encode()) if isinstance(content, str) else None
    except (ValueError, RecursionError):
        return
    devices = document.get("devices") if document is not None else None
    for device in devices if isinstance(devices, list) else []:
        edits = device.get("containerEdits") if isinstance(device, dict) else None
        nodes = edits.get("deviceNodes") if isinstance(edits, dict) else None
        for node in nodes if isinstance(nodes, list) else []:
            group = _GROUP_NODE.fullmatch(str(node.get("path") if isinstance(node, dict) else ""))
            if group:
                yield str(device.get("name")), group[1]


def _kernel_arguments(subject: Subject) -> list[str]:
    return _texts(subject.props.get("kernel_arguments"))


def _texts(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
