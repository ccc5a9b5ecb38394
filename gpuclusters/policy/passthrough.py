"""Rules about machines whose GPUs go into virtual machines."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpuclusters.cdi import decide as cdi
from gpuclusters.policy.rule import Parameters, Stack, Violation
from gpuclusters.review.plan import KEPT, Resource

_DRIVER_PACKAGE = re.compile(
    r"(?<![\w-])(?:nvidia-(?:driver|open|kernel|dkms|headless)|cuda-drivers)[\w.=:-]*"
)
_GROUP_NODE = re.compile(r"/dev/vfio/(\d+)")
_CDI_FOLDERS = ("/etc/cdi/", "/var/run/cdi/", "/run/cdi/")
_FAKED = "pcie_acs_override="


def host_driver(stack: Stack, _parameters: Parameters) -> Iterator[Violation]:
    """NVIDIA's driver on a machine that passes its GPUs on."""
    passed = {s.host for s in stack.of(f"{KEPT}VfioBinding")} - {""}
    for resource in stack.resources if passed else ():
        says = _loads_driver(resource, on_passed=resource.host in passed)
        if says:
            yield Violation(resource, says)


def _loads_driver(resource: Resource, *, on_passed: bool) -> str:
    host, type_ = resource.host, resource.type
    if type_ == "command:remote:Command":
        found = _DRIVER_PACKAGE.search(str(resource.inputs.get("create") or ""))
        where = "on a machine of a cluster that passes GPUs to VMs"
        return f"the command installs {found[0]} {where}" if found else ""
    if on_passed and type_.startswith(KEPT) and "Driver" in type_:
        return f"an NVIDIA driver is installed on {host}, which passes its GPUs to VMs"
    if on_passed and type_ == f"{KEPT}HostBoot":
        lists = (a for a in _kernel_arguments(resource) if a.startswith("module_blacklist="))
        loads = any("nvidia" not in argument for argument in lists)
        return f"{host} does not keep the NVIDIA driver from loading" if loads else ""
    return ""


def shared_iommu_group(stack: Stack, _parameters: Parameters) -> Iterator[Violation]:
    """GPUs that the hardware cannot tell apart, in a cluster with more than one tenant."""
    if stack.tenants < 2:
        return
    groups, may = _groups(stack), f"{stack.tenants} tenants may get them"
    owners: dict[tuple[str, str], str] = {}
    for resource in stack.resources:
        for name, address in _devices(resource):
            label = f"{name} ({address})"
            here = (resource.host, groups.get((resource.host, address), address))
            other = owners.setdefault(here, label)
            if other != label:
                told = f"group {here[1]}" if here[1] != address else "the same function"
                one_group = f"of {resource.host} are in one IOMMU group ({told})"
                yield Violation(resource, f"{other} and {label} {one_group}, and {may}")
        for one, more, group in _same_nodes(resource):
            where = f"{resource.host or 'one machine'} are one IOMMU group (/dev/vfio/{group})"
            yield Violation(resource, f"the CDI devices {one} and {more} of {where}, and {may}")
        arguments = _kernel_arguments(resource) if resource.type == f"{KEPT}HostBoot" else []
        if faked := [argument for argument in arguments if argument.startswith(_FAKED)]:
            apart = f"makes IOMMU groups of {resource.host} look apart that the hardware does not separate"
            yield Violation(resource, f"{faked[0]} {apart}")
    yield from _with_the_service_vm(stack)


def _with_the_service_vm(stack: Stack) -> Iterator[Violation]:
    gpus = {(one.host, at): name for one in stack.resources for name, at in _devices(one)}
    for vm in stack.of(f"{KEPT}ServiceVm"):
        held = [*_texts(vm.inputs.get("switches")), *_texts(vm.inputs.get("extra_functions"))]
        for address in held:
            if name := gpus.get((vm.host, address)):
                says = f"the service VM of {vm.host} holds {address}, which tenants get as {name}"
                yield Violation(vm, says)


def _groups(stack: Stack) -> Mapping[tuple[str, str], str]:
    """IOMMU group by host and PCI address, as machines have told."""
    found: dict[tuple[str, str], str] = {}
    for resource in stack.of(f"{KEPT}VfioBinding"):
        told = resource.outputs.get("iommu_groups")
        for address, group in told.items() if isinstance(told, Mapping) else ():
            number = int(group) if isinstance(group, float) and group.is_integer() else group
            found[resource.host, str(address)] = str(number)
    return found


def _devices(resource: Resource) -> Iterator[tuple[str, str]]:
    """Name and PCI address of what a CDI spec hands out."""
    devices = resource.inputs.get("devices")
    if resource.type == f"{KEPT}CdiSpec" and isinstance(devices, list):
        for device in devices:
            if isinstance(device, Mapping) and isinstance(device.get("pci_address"), str):
                yield f"{resource.inputs.get('kind')}={device.get('name')}", device["pci_address"]


def _same_nodes(resource: Resource) -> Iterator[tuple[str, str, str]]:
    """Devices of a CDI file that name one VFIO group: in a file that we keep, or in one made by hand."""
    path = str(resource.inputs.get("path") or "")
    if resource.type == f"{KEPT}CdiSpec":
        content = resource.outputs.get("content")
    elif resource.type == f"{KEPT}HostFile" and path.startswith(_CDI_FOLDERS):
        content = resource.inputs.get("content")
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


def _kernel_arguments(resource: Resource) -> list[str]:
    return _texts(resource.inputs.get("kernel_arguments"))


def _texts(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
