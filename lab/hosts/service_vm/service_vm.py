"""What a virtual machine of a simulated host does when it is powered on: it reads its seed, serves or fails.

A disk image is a text that says what is installed; an overlay names its base; a seed keeps the files that
cloud-init reads. So the VM finds what it was really given, and its fabric manager comes up only if the seed,
the version and the devices are right.
"""

import json
import xml.etree.ElementTree as ET
from typing import Any

import yaml

from lab.hosts.faults import FabricManagerStaysResident, Faults, VmDoesNotBoot
from lab.hosts.hardware.board import PciDevice
from lab.hosts.machine import Machine
from lab.hosts.service_vm import service_vm_guest
from lab.hosts.service_vm.fabric import CLIENT_VERSION, CONFIGURATION, Fabric, settings

IMAGE = "/var/lib/libvirt/images/fabric-manager.img"
"""Where the operator of a machine has put the image of its service VM."""
_NVSWITCH = ("10de", "22a3")
"""Vendor and device of the NVSwitch of HGX H100 (pci.ids: GH100 [H100 NVSwitch])."""
KIND = "stand-in"


def image_text(fabric_manager: str = CLIENT_VERSION) -> str:
    """A disk image that holds this version of the fabric manager."""
    content = {KIND: "disk image", "format": "qcow2", "fabric-manager": fabric_manager}
    return json.dumps(content, sort_keys=True) + "\n"


def came_prepared(machine: Machine) -> bool:
    """Whether the machine came with a service VM."""
    return machine.condition == "prepared"


def furnish(machine: Machine) -> None:
    """Give a new machine the image that its operator has copied there."""
    if machine.state.get("image_copied"):
        return
    machine.state["image_copied"] = True
    path = machine.path(IMAGE)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(image_text())


def load(machine: Machine, path: str, kind: str) -> dict[str, Any] | None:
    """The content of an image, an overlay or a seed; None if the file is no such thing."""
    try:
        content = json.loads(machine.read_text(path) or "")
    except ValueError:
        return None
    return content if isinstance(content, dict) and content.get(KIND) == kind else None


def installed(machine: Machine, disk: str) -> str | None:
    """The fabric manager's version on a disk, through its overlays; None if it boots nothing."""
    for _ in range(8):
        content = load(machine, disk, "disk image")
        if content is None:
            return None
        if "backing" not in content:
            version = content.get("fabric-manager")
            return str(version) if version else ""
        disk = str(content["backing"])
    return None


def functions(domain: ET.Element) -> list[str]:
    """Addresses of the PCI functions that a domain is given."""
    hostdevs = domain.iter("hostdev")
    sources = (source for hostdev in hostdevs for source in hostdev.iterfind("source/address"))
    return [_address(source) for source in sources]


def _address(source: ET.Element) -> str:
    number, bus, slot, function = (
        int(source.get(part, "0"), 16) for part in ("domain", "bus", "slot", "function")
    )
    return f"{number:04x}:{bus:02x}:{slot:02x}.{function:x}"


def holds_switches(machine: Machine, domain: ET.Element) -> bool:
    """Whether a domain was given any NVSwitch: then it is the one that runs the fabric manager."""
    return bool(set(functions(domain)) & _switches(machine))


def is_switch(device: PciDevice) -> bool:
    return (device.vendor, device.device) == _NVSWITCH


def _switches(machine: Machine) -> set[str]:
    return {d.address for d in machine.board.devices if is_switch(d)}


def make_overlay(machine: Machine, path: str, backing: str, *, gib: int = 16) -> None:
    file = machine.path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {KIND: "disk image", "format": "qcow2", "backing": backing, "gib": gib}
    file.write_text(json.dumps(content, sort_keys=True) + "\n")


def power_on(machine: Machine, faults: Faults, domain: ET.Element) -> str:
    """The VM boots; answers what it writes to its console."""
    fabric = Fabric(machine, faults)
    disk = _source(domain, "disk")
    seed = load(machine, _source(domain, "cdrom"), "seed")
    version = installed(machine, disk)
    if fabric.powered is None and seed is None and came_prepared(machine):
        # The machine came with it; what it serves is what the host's own files say.
        fabric.started()
        return ""
    fabric.power_off()
    if faults.first(VmDoesNotBoot) or version is None:
        return ""
    booted = "Linux version 6.8.0-60-generic\nsystemd[1]: Reached target multi-user.target.\n"
    if seed is None:
        return booted + "cloud-init: no datasource found\n"
    user_data = yaml.safe_load(seed["user-data"])
    files = {f["path"]: f["content"] for f in user_data.get("write_files", [])}
    for name, its in user_data.get("packages", []):
        if name.startswith("nvidia-fabricmanager"):
            version = its.partition("-")[0]
    wanted = next((c[-1] for c in user_data.get("runcmd", []) if c[1:2] == ["start"]), version)
    if version != wanted:
        service_vm_guest.booted(machine, seed, version=version, service="inactive", log="")
        return f"{booted}{_said(version or 'none')} wanted={wanted}\n"
    config = settings(files.get(CONFIGURATION, ""))
    problem = _problem(machine, faults, domain, seed, config)
    resident = config.get("FM_STAY_RESIDENT_ON_FAILURES") == "1"
    resident = resident or faults.first(FabricManagerStaysResident) is not None
    if not problem:
        fabric.power_on(version, config)
    state = "active" if resident or not problem else "failed"
    log = (
        problem
        or "Successfully configured all the available NVSwitches to route GPU NVLink traffic."
    )
    service_vm_guest.booted(machine, seed, version=version, service=state, log=f"{log}\n")
    return f"{booted}{_said(version)}\n{_said(version)} state={state}\n"


def _problem(
    machine: Machine,
    faults: Faults,
    domain: ET.Element,
    seed: dict[str, Any],
    config: dict[str, str],
) -> str:
    """Why the fabric manager does not come up, as it writes into its log; empty if it does."""
    if faults.first(FabricManagerStaysResident):
        return "failed to initialize: the fabric cannot be configured"
    missing = sorted(_switches(machine) - set(functions(domain)))
    if missing:
        return f"failed to find all the expected NVSwitches: {len(missing)} missing"
    if not _listens(seed, config):
        return f"failed to bind to {config.get('FM_CMD_BIND_INTERFACE', '')}"
    return ""


def power_off(machine: Machine, faults: Faults) -> None:
    service_vm_guest.ended(machine)
    fabric = Fabric(machine, faults)
    if fabric.powered is not None or not came_prepared(machine):
        fabric.power_off()


def _said(version: str) -> str:
    return f"gpu-clusters: fabric-manager version={version}"


def _source(domain: ET.Element, device: str) -> str:
    found = domain.find(f".//disk[@device='{device}']/source")
    return "" if found is None else found.get("file", "")


def _listens(seed: dict[str, Any], config: dict[str, str]) -> bool:
    """Whether the address that it is to bind is one that the VM has."""
    links = yaml.safe_load(seed.get("network-config") or "{}").get("ethernets", {})
    own = {a.partition("/")[0] for link in links.values() for a in link.get("addresses", [])}
    return config.get("FM_CMD_BIND_INTERFACE", "127.0.0.1") in {*own, "127.0.0.1"}
