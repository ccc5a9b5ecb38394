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
    for subject in stack.there:
        if subject.type.startswith(DYNAMIC) and "Driver" in subject.type and subject.host in passed:
            yield Violation(
                subject,
                f"an NVIDIA driver is installed on {subject.host}, which passes its GPUs to VMs",
            )
        elif subject.type == "command:remote:Command" and passed:
            found = _DRIVER_PACKAGE.search(str(subject.props.get("create") or ""))
            if found:
                yield Violation(
                    subject,
                    f"the command installs {found[0]} on a machine of a cluster that passes GPUs to VMs",
                )
        elif subject.type == f"{DYNAMIC}HostBoot" and subject.host in passed:
            loads = [
                argument
                for argument in _kernel_arguments(subject)
                if argument.startswith("module_blacklist=") and "nvidia" not in argument
            ]
            if loads:
                yield Violation(
                    subject, f"{subject.host} does not keep the NVIDIA driver from loading"
                )


def shared_iommu_group(stack: Stack, _parameters: Parameters) -> Iterator[Violation]:
    """GPUs that the hardware cannot tell apart, in a cluster with more than one tenant."""
    if stack.tenants < 2:
        return
    groups = _groups(stack)
    owners: dict[tuple[str, str], str] = {}
    for subject in stack.there:
        for name, address in _devices(subject):
            label = f"{name} ({address})"
            here = (subject.host, groups.get((subject.host, address), address))
            other = owners.setdefault(here, label)
            if other != label:
                told = f"group {here[1]}" if here[1] != address else "the same function"
                yield Violation(
                    subject,
                    f"{other} and {label} of {subject.host} are in one IOMMU group ({told}), and "
                    f"{stack.tenants} tenants may get them",
                )
        for one, more, group in _same_nodes(subject):
            yield Violation(
                subject,
                f"the CDI devices {one} and {more} of {subject.host or 'one machine'} are one IOMMU group "
                f"(/dev/vfio/{group}), and {stack.tenants} tenants may get them",
            )
        if subject.type == f"{DYNAMIC}HostBoot":
            faked = [a for a in _kernel_arguments(subject) if a.startswith(_FAKED)]
            if faked:
                yield Violation(
                    subject,
                    f"{faked[0]} makes IOMMU groups of {subject.host} look apart that the hardware does not "
                    "separate",
                )
    yield from _with_the_service_vm(stack)


def _with_the_service_vm(stack: Stack) -> Iterator[Violation]:
    gpus = {
        (subject.host, address): name
        for subject in stack.there
        for name, address in _devices(subject)
    }
    for vm in stack.of(f"{DYNAMIC}ServiceVm"):
        held = [*_texts(vm.props.get("switches")), *_texts(vm.props.get("extra_functions"))]
        for address in held:
            if (vm.host, address) in gpus:
                yield Violation(
                    vm,
                    f"the service VM of {vm.host} holds {address}, which tenants get as "
                    f"{gpus[vm.host, address]}",
                )


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
