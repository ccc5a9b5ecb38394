"""libvirt's side of a simulated host: the domains and networks it knows, and how it completes their XML.

Source: libvirt's "Domain XML format": what is added is what `virsh dumpxml` shows of a domain that was
defined with less: uuid, currentMemory, the versioned machine type, controllers and addresses on the bus;
while it runs also an id, aliases and the running index of disks.
"""

import copy
import xml.etree.ElementTree as ET
from typing import Any
from uuid import UUID, uuid4, uuid5

from lab.hosts.faults import Faults
from lab.hosts.machine import PREPARED, Machine
from lab.hosts.service_vm import service_vm

MACHINE_TYPE = "pc-q35-10.1"
SERVICE_VM = "fabric-manager"
"""Domain and network of a prepared machine."""
_UNIT = "/etc/systemd/system/gpu-clusters-service-vm.service"
_UUIDS = UUID("6f0d2c53-0f0e-5d0c-9b7a-3f5b5ce0a2d4")
_FOLDER = "/var/lib/libvirt/images/gpu-clusters"

Record = dict[str, Any]

# libvirt keeps the prefixes of a document, this parser only those that it knows.
ET.register_namespace("qemu", "http://libvirt.org/schemas/domain/qemu/1.0")
ET.register_namespace("gpu-clusters", "https://gpu-clusters.dev/libvirt/service-vm/1")


def domains(machine: Machine) -> dict[str, Record]:
    """The domains by name; a prepared machine came with the one of the fabric manager."""
    service_vm.furnish(machine)
    found: dict[str, Record] = machine.state.setdefault("domains", {})
    if "domains_made" not in machine.state:
        machine.state["domains_made"] = True
        if service_vm.came_prepared(machine):
            found[SERVICE_VM] = _make_prepared(machine)
    return found


def networks(machine: Machine) -> dict[str, Record]:
    found: dict[str, Record] = machine.state.setdefault("networks", {})
    return found


def is_running(machine: Machine, name: str) -> bool:
    domain = domains(machine).get(name)
    return domain is not None and bool(domain["running"])


def _make_prepared(machine: Machine) -> Record:
    """The service VM and its network as they were recorded; uuids are made of the host's name."""
    recorded = (PREPARED / machine.board.platform / "fabric-manager.xml").read_text()
    network = (PREPARED / "network.xml").read_text()
    service_vm.make_overlay(machine, f"{_FOLDER}/fabric-manager.qcow2", service_vm.IMAGE)
    # Its fabric manager is the one that the host itself says it has, until it is started anew.
    seed = machine.path(f"{_FOLDER}/fabric-manager-seed.iso")
    seed.write_text("(seed of a machine that came prepared)\n")
    networks(machine)[SERVICE_VM] = {
        "xml": network.replace("UUID", _uuid(f"{machine.name}/network/{SERVICE_VM}")),
        "active": True,
        "autostart": True,
    }
    own = recorded.replace("UUID", _uuid(f"{machine.name}/{SERVICE_VM}"))
    xml = complete(ET.fromstring(own))  # noqa: S314 - of this repository
    return {
        "running": True,
        "autostart": True,
        "id": 1,
        "xml": xml,
        "running_xml": running(xml, 1),
    }


def _uuid(identity: str) -> str:
    return str(uuid5(_UUIDS, identity))


def text(root: ET.Element) -> str:
    """The document as `virsh dumpxml` prints it."""
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def pci_attributes(address: str) -> dict[str, str]:
    """`0000:05:00.0` as libvirt writes it."""
    domain, bus, slot, function = address.replace(".", ":").split(":")
    numbers = {"domain": domain, "bus": bus, "slot": slot, "function": function}
    return {name: f"0x{number}" for name, number in numbers.items()}


def complete(root: ET.Element) -> str:
    root = copy.deepcopy(root)
    if root.find("uuid") is None:
        uuid = ET.Element("uuid")
        uuid.text = str(uuid4())
        root.insert(1, uuid)
    memory = root.find("memory")
    if memory is not None and root.find("currentMemory") is None:
        current = ET.Element("currentMemory", dict(memory.attrib))
        current.text = memory.text
        root.insert(list(root).index(memory) + 1, current)
    kind = root.find("os/type")
    if kind is not None and kind.get("machine") == "q35":
        kind.set("machine", MACHINE_TYPE)
    devices = root.find("devices")
    if devices is not None:
        _complete_devices(devices)
    return text(root)


def _complete_devices(devices: ET.Element) -> None:
    ports = [c for c in devices.findall("controller") if c.get("model") == "pcie-root-port"]
    for number, port in enumerate(ports):
        if port.find("model") is None:
            port.insert(0, ET.Element("model", {"name": "pcie-root-port"}))
        if port.find("address") is None:
            at = pci_attributes(f"0000:00:{2 + number // 8:02x}.{number % 8}")
            ET.SubElement(port, "address", {"type": "pci", **at})
    bus = len(ports)
    for tag in ("interface", "disk", "memballoon", "rng", "watchdog"):
        for device in devices.findall(tag):
            if device.find("address") is None and device.get("model") != "none":
                bus += 1
                at = pci_attributes(f"0000:{bus:02x}:00.0")
                ET.SubElement(device, "address", {"type": "pci", **at})
    have = {(c.get("type"), c.get("model")) for c in devices.findall("controller")}
    for attributes in (
        {"type": "usb", "index": "0", "model": "qemu-xhci"},
        {"type": "sata", "index": "0"},
    ):
        if (attributes["type"], attributes.get("model")) not in have:
            ET.SubElement(devices, "controller", attributes)
    for kind in ("mouse", "keyboard"):
        if devices.find(f"input[@type='{kind}']") is None:
            ET.SubElement(devices, "input", {"type": kind, "bus": "ps2"})
    for tag, attributes in (("console", {"type": "pty"}), ("audio", {"id": "1", "type": "none"})):
        if devices.find(tag) is None:
            ET.SubElement(devices, tag, attributes)


def running(xml: str, number: int) -> str:
    root = ET.fromstring(xml)  # noqa: S314 - written by this machine's own root
    root.set("id", str(number))
    for tag, alias in (("disk", "disk"), ("interface", "net"), ("hostdev", "hostdev")):
        for index, device in enumerate(root.findall(f"devices/{tag}")):
            ET.SubElement(device, "alias", {"name": f"{alias}{index}"})
    for index, source in enumerate(root.findall("devices/disk/source"), start=1):
        source.set("index", str(index))
    return text(root)


def start(machine: Machine, faults: Faults, name: str) -> str | None:
    """Start a domain; answers why it cannot be, or None."""
    domain = domains(machine)[name]
    root = ET.fromstring(domain["xml"])  # noqa: S314 - as above
    problem = _missing(machine, root) or not_viable(machine, root)
    if problem:
        return problem
    machine.state["domain_number"] = int(machine.state.get("domain_number", 1)) + 1
    number = machine.state["domain_number"]
    domain.update(running=True, id=number, running_xml=running(domain["xml"], number))
    if service_vm.holds_switches(machine, root):
        log = root.find("devices/serial/log")
        said = service_vm.power_on(machine, faults, root)
        if log is not None:
            path = machine.path(log.get("file", ""))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(said)
    return None


def stop(machine: Machine, faults: Faults, name: str) -> None:
    domain = domains(machine)[name]
    domain["running"] = False
    root = ET.fromstring(domain["running_xml"])  # noqa: S314 - as above
    if service_vm.holds_switches(machine, root):
        service_vm.power_off(machine, faults)


def host_booted(machine: Machine, faults: Faults) -> None:
    """The machine went down and came back: no domain runs, and networks are as they start with libvirt.

    Domains are started by our unit, whose order says when the devices are bound to vfio-pci. Without it the
    machine's own VM counts as started: nobody here plays libvirt's autostart.
    """
    if machine.read_text(_UNIT) is None:
        return
    for name, domain in domains(machine).items():
        if domain["running"]:
            stop(machine, faults, name)
    for network in networks(machine).values():
        network["active"] = bool(network["autostart"])


def _missing(machine: Machine, root: ET.Element) -> str | None:
    """What libvirt does not find when it starts a domain: a file or an active network."""
    for source in root.iterfind("devices/disk/source"):
        path = source.get("file", "")
        if not machine.path(path).exists():
            return (
                f"Cannot access storage file '{path}' (as uid:64055, gid:994): "
                "No such file or directory"
            )
    for source in root.iterfind("devices/interface/source"):
        name = source.get("network", "")
        network = networks(machine).get(name)
        if network is None:
            return f"Network not found: no network with matching name '{name}'"
        if not network["active"]:
            return f"Requested operation is not valid: network '{name}' is not active"
    return None


def not_viable(machine: Machine, root: ET.Element) -> str | None:
    """Why VFIO would refuse a domain's devices: absent, not bound, or a group with a foreign endpoint."""
    present = {device.address: device for device in machine.board.devices}
    managed = {
        address: hostdev.get("managed")
        for hostdev in root.iterfind(".//hostdev")
        for address in service_vm.functions(hostdev)
    }
    for address in service_vm.functions(root):
        device = present.get(address)
        if device is None:
            return (
                f"Device {address} not found: could not access "
                f"/sys/bus/pci/devices/{address}/config: No such file or directory"
            )
        group = f"/sys/kernel/iommu_groups/{device.iommu_group}/devices"
        if not machine.path(group).exists():
            return (
                f"unsupported configuration: host doesn't support passthrough of host PCI devices "
                f"({address} has no IOMMU group)"
            )
        bound = _driver(machine, f"/sys/bus/pci/devices/{address}")
        if managed.get(address) != "yes" and bound != "vfio-pci":
            return (
                f"Unmanaged PCI device {address} must be manually detached from the host "
                f"(it is not bound to vfio-pci but to {bound or 'no driver'})"
            )
        for entry in sorted(machine.path(group).iterdir()):
            driver = _driver(machine, f"{group}/{entry.name}")
            other = present.get(entry.name)
            if driver not in {"vfio-pci", None} and not (other and other.is_bridge):
                return (
                    f"internal error: vfio {address}: group {device.iommu_group} is not viable\n"
                    "Please ensure all devices within the iommu_group are bound to their vfio bus "
                    "driver."
                )
    return None


def _driver(machine: Machine, device: str) -> str | None:
    driver = machine.path(f"{device}/driver")
    return driver.name if driver.exists() else None
