"""libvirt's XML of the service VM and of its network, built as documents, never as text.

Source: libvirt's "Domain XML format" and "Network XML format"; the shape of the VM is that of NVIDIA's
shared NVSwitch guide WP-12736-002 and of the working setups that follow it.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from typing import Final
from uuid import UUID, uuid5

from gpuclusters.service_vm.model import MAC, ServiceVmInputs, VmNetwork

QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
OURS = "https://gpu-clusters.dev/libvirt/service-vm/1"
"""Namespace of our mark in the metadata: whose the domain is, and what it was started with."""
MARK = f"{{{OURS}}}service-vm"

PREF64_RESERVE = 512 * 1024**3
"""Window of 64-bit prefetchable memory that each root port opens; QEMU's own is too small for boards
whose functions have large BARs."""
_FIRST_PORT_NUMBER = 0x10
_UUIDS = UUID("6f0d2c53-0f0e-5d0c-9b7a-3f5b5ce0a2d4")

ET.register_namespace("qemu", QEMU)
ET.register_namespace("gpu-clusters", OURS)


def domain(vm: ServiceVmInputs, *, seed_digest: str) -> ET.Element:
    """The domain.

    Args:
        vm: what it is made of.
        seed_digest: digest of what cloud-init is told; a running VM with another one has to restart.
    """
    root = ET.Element("domain", {"type": "kvm"})
    _text(root, "name", vm.name)
    # libvirt refuses to define a name anew that has another uuid.
    _text(root, "uuid", uuid_of(vm.natural_id))
    mark = ET.SubElement(ET.SubElement(root, "metadata"), MARK)
    mark.attrib.update({"seed": seed_digest, "image": vm.image.sha256})
    _text(root, "memory", str(vm.memory_mib * 1024), {"unit": "KiB"})
    _text(root, "vcpu", str(vm.vcpus), {"placement": "static"})
    _firmware(root, vm)
    features = ET.SubElement(root, "features")
    ET.SubElement(features, "acpi")
    ET.SubElement(features, "apic")
    cpu = ET.SubElement(root, "cpu", {"mode": "host-passthrough", "check": "none"})
    # As many physical address bits as the host has: OVMF sizes its window for large BARs by them.
    ET.SubElement(cpu, "maxphysaddr", {"mode": "passthrough"})
    ET.SubElement(root, "clock", {"offset": "utc"})
    _text(root, "on_poweroff", "destroy")
    _text(root, "on_reboot", "restart")
    _text(root, "on_crash", "restart")
    _devices(ET.SubElement(root, "devices"), vm)
    commandline = ET.SubElement(root, f"{{{QEMU}}}commandline")
    for value in ("-global", f"pcie-root-port.pref64-reserve={PREF64_RESERVE}"):
        ET.SubElement(commandline, f"{{{QEMU}}}arg", {"value": value})
    return root


def _firmware(root: ET.Element, vm: ServiceVmInputs) -> None:
    os = ET.SubElement(root, "os", {"firmware": "efi"})
    _text(os, "type", "hvm", {"arch": "x86_64", "machine": "q35"})
    firmware = ET.SubElement(os, "firmware")
    for feature in ("enrolled-keys", "secure-boot"):  # NVIDIA's module is signed with nobody's key
        ET.SubElement(firmware, "feature", {"enabled": "no", "name": feature})
    _text(os, "loader", vm.firmware.code, {"readonly": "yes", "type": "pflash"})
    _text(os, "nvram", vm.nvram, {"template": vm.firmware.variables})
    ET.SubElement(os, "boot", {"dev": "hd"})


def _devices(devices: ET.Element, vm: ServiceVmInputs) -> None:
    _disk(devices, vm.disk, "qcow2", "vda", "virtio", cdrom=False)
    _disk(devices, vm.seed, "raw", "sda", "sata", cdrom=True)
    ET.SubElement(devices, "controller", {"type": "pci", "index": "0", "model": "pcie-root"})
    for index in range(1, len(vm.functions) + 1):
        port = ET.SubElement(
            devices,
            "controller",
            {"type": "pci", "index": str(index), "model": "pcie-root-port"},
        )
        # Chassis and port are what the guest tells slots apart by: no two root ports share them.
        number = hex(_FIRST_PORT_NUMBER + index - 1)
        ET.SubElement(port, "target", {"chassis": str(index), "port": number})
    interface = ET.SubElement(devices, "interface", {"type": "network"})
    ET.SubElement(interface, "mac", {"address": MAC})
    ET.SubElement(interface, "source", {"network": vm.network.name})
    ET.SubElement(interface, "model", {"type": "virtio"})
    serial = ET.SubElement(devices, "serial", {"type": "pty"})
    # What the VM says while it boots; started anew with each start of the VM.
    ET.SubElement(serial, "log", {"file": vm.console, "append": "off"})
    ET.SubElement(serial, "target", {"port": "0"})
    for index, address in enumerate(vm.functions, start=1):
        _function(devices, address, bus=index)
    ET.SubElement(devices, "watchdog", {"model": "i6300esb", "action": "reset"})
    ET.SubElement(devices, "memballoon", {"model": "none"})
    rng = ET.SubElement(devices, "rng", {"model": "virtio"})
    _text(rng, "backend", "/dev/urandom", {"model": "random"})


def _disk(devices: ET.Element, path: str, kind: str, target: str, bus: str, *, cdrom: bool) -> None:
    disk = ET.SubElement(devices, "disk", {"type": "file", "device": "cdrom" if cdrom else "disk"})
    ET.SubElement(disk, "driver", {"name": "qemu", "type": kind})
    ET.SubElement(disk, "source", {"file": path})
    ET.SubElement(disk, "target", {"dev": target, "bus": bus})
    if cdrom:
        ET.SubElement(disk, "readonly")


def _function(devices: ET.Element, address: str, *, bus: int) -> None:
    """A PCI function behind a root port of its own.

    `managed='no'`: our unit binds it to vfio-pci at boot, and libvirt never gives it back to a driver.
    """
    hostdev = ET.SubElement(
        devices, "hostdev", {"mode": "subsystem", "type": "pci", "managed": "no"}
    )
    ET.SubElement(hostdev, "driver", {"name": "vfio"})
    ET.SubElement(ET.SubElement(hostdev, "source"), "address", pci_attributes(address))
    guest = pci_attributes(f"0000:{bus:02x}:00.0")
    ET.SubElement(hostdev, "address", {"type": "pci", **guest})


def network(net: VmNetwork, *, host: str) -> ET.Element:
    """The host-only network: without `forward` libvirt lets nothing in or out."""
    root = ET.Element("network")
    _text(root, "name", net.name)
    _text(root, "uuid", uuid_of(f"{host}/network/{net.name}"))
    ET.SubElement(root, "bridge", {"name": net.bridge, "stp": "on", "delay": "0"})
    ET.SubElement(root, "dns", {"enable": "no"})
    ET.SubElement(root, "ip", {"address": net.host_address, "prefix": str(net.prefix_length)})
    return root


def uuid_of(identity: str) -> str:
    """The same uuid for the same thing at every time."""
    return str(uuid5(_UUIDS, identity))


def text(root: ET.Element) -> str:
    """The document, indented as `virsh dumpxml` prints."""
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def parse(document: str) -> ET.Element | None:
    """The document that libvirt printed, or None if it is no XML."""
    try:
        # What root's own hypervisor says; entities are not expanded by this parser's callers.
        return ET.fromstring(document)  # noqa: S314
    except ET.ParseError:
        return None


def pci_attributes(address: str) -> dict[str, str]:
    """`0000:05:00.0` as libvirt writes it."""
    number, bus, rest = address.split(":")
    slot, _, function = rest.partition(".")
    return {
        "domain": f"0x{number}",
        "bus": f"0x{bus}",
        "slot": f"0x{slot}",
        "function": f"0x{function}",
    }


def pci_address(attributes: Mapping[str, str]) -> str | None:
    """The address of libvirt's attributes, or None if they are none."""
    try:
        number, bus, slot, function = (
            int(attributes.get(key, "0"), 16) for key in ("domain", "bus", "slot", "function")
        )
    except ValueError:
        return None
    return f"{number:04x}:{bus:02x}:{slot:02x}.{function:x}"


def mark_of(root: ET.Element) -> Mapping[str, str] | None:
    """Our mark in a domain's metadata: `seed` and `image`; None if the domain is not ours."""
    mark = root.find(f"metadata/{MARK}")
    return None if mark is None else dict(mark.attrib)


def _text(
    parent: ET.Element, name: str, value: str, attributes: Mapping[str, str] | None = None
) -> None:
    ET.SubElement(parent, name, dict(attributes or {})).text = value


# How what libvirt has differs from what we told it. libvirt completes what it is given: a uuid, PCI
# addresses, controllers, a versioned machine type, memory in KiB, defaults. So a live document is right if
# it says all that ours says, and if no function, disk or network card is in it that ours does not name.

_UNITS: Final[Mapping[str, int]] = {
    "b": 1,
    "bytes": 1,
    "KB": 1000,
    "k": 1024,
    "KiB": 1024,
    "MB": 1000**2,
    "M": 1024**2,
    "MiB": 1024**2,
    "GB": 1000**3,
    "G": 1024**3,
    "GiB": 1024**3,
}


def _disk_key(element: ET.Element) -> str:
    return _attribute(element, "target", "dev")


def _interface_key(element: ET.Element) -> str:
    return _attribute(element, "mac", "address").lower()


def _hostdev_key(element: ET.Element) -> str:
    source = element.find("source/address")
    return (pci_address(source.attrib) if source is not None else None) or "of another kind"


def _attribute(element: ET.Element, child: str, name: str) -> str:
    found = element.find(child)
    return "" if found is None else found.get(name, "")


_CLOSED: Final[Mapping[str, tuple[str, Callable[[ET.Element], str]]]] = {
    "disk": ("disk", _disk_key),
    "interface": ("network card", _interface_key),
    "hostdev": ("PCI function", _hostdev_key),
}
"""Devices of which the VM has those that we name and no other: word and identity."""

_KEYS: Final[Mapping[str, Callable[[ET.Element], str]]] = {
    **{tag: key for tag, (_, key) in _CLOSED.items()},
    "controller": lambda e: f"{e.get('type')} {e.get('index')}",
    "feature": lambda e: e.get("name", ""),
    "{http://libvirt.org/schemas/domain/qemu/1.0}arg": lambda e: e.get("value", ""),
}


def differences(wanted: ET.Element, live: ET.Element) -> list[str]:
    """Each difference that matters, in words; empty if the live document is right."""
    return list(_differences(wanted, live, ""))


def _differences(wanted: ET.Element, live: ET.Element, path: str) -> Iterator[str]:
    for name, value in wanted.attrib.items():
        if wanted.tag == "memory" and name == "unit":
            continue
        found = live.get(name)
        if not _equal(wanted.tag, name, value, found):
            yield f"{path or wanted.tag} has {name} {_shown(found)} instead of {_shown(value)}"
    if wanted.tag == "memory":
        if _bytes(wanted) != _bytes(live):
            yield f"{path} is {_size(live)} instead of {_size(wanted)}"
    elif (wanted.text or "").strip() and (wanted.text or "").strip() != (live.text or "").strip():
        yield f"{path} is {_shown((live.text or '').strip())} instead of {_shown(wanted.text)}"
    for child in wanted:
        key = _KEYS.get(child.tag)
        word = _word(child)
        match = _find(child, live, key)
        if match is None:
            yield f"{word} is missing"
        else:
            yield from _differences(child, match, _path(path, word))
    for tag, (word, key) in _CLOSED.items():
        ours = {key(element) for element in wanted.findall(tag)}
        if wanted.tag == "devices":
            for element in live.findall(tag):
                if key(element) not in ours:
                    yield f"{word} {key(element)} is there and should not be"


def _find(
    child: ET.Element, live: ET.Element, key: Callable[[ET.Element], str] | None
) -> ET.Element | None:
    candidates = live.findall(child.tag)
    if key is not None:
        candidates = [c for c in candidates if key(c) == key(child)]
    return candidates[0] if candidates else None


def _word(element: ET.Element) -> str:
    if element.tag == MARK:
        return "our mark"
    if element.tag in _CLOSED:
        word, key = _CLOSED[element.tag]
        return f"{word} {key(element)}"
    key_of = _KEYS.get(element.tag)
    name = element.tag.rpartition("}")[2]
    return f"{name} {key_of(element)}" if key_of else name


def _path(path: str, word: str) -> str:
    return word if path in {"", "devices", "metadata"} else f"{path} {word}"


def _equal(tag: str, name: str, wanted: str, found: str | None) -> bool:
    if found is None:
        return False
    if (tag, name) == ("type", "machine"):
        # libvirt stores the newest version of the type: pc-q35-noble for q35.
        return found == wanted or found.startswith(f"pc-{wanted}-")
    if wanted.startswith("0x"):
        try:
            return int(wanted, 16) == int(found, 16)
        except ValueError:
            return False
    return wanted.lower() == found.lower() if tag == "mac" else wanted == found


def _bytes(element: ET.Element) -> int:
    try:
        return int((element.text or "").strip()) * _UNITS.get(element.get("unit", "KiB"), 1024)
    except ValueError:
        return -1


def _size(element: ET.Element) -> str:
    return f"{_bytes(element) // 1024**2} MiB"


def _shown(value: str | None) -> str:
    return "nothing" if value is None else f'"{value}"'
