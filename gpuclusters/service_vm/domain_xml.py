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
_PCI_PARTS = ("domain", "bus", "slot", "function")
_UUIDS = UUID("6f0d2c53-0f0e-5d0c-9b7a-3f5b5ce0a2d4")

ET.register_namespace("qemu", QEMU)
ET.register_namespace("gpu-clusters", OURS)


def domain(vm: ServiceVmInputs, *, seed_digest: str) -> ET.Element:
    """The domain; a running VM with another digest of what cloud-init is told has to restart."""
    # Named by its files alone: libvirt 9.0 refuses the attribute `firmware` beside them. They are those
    # without Secure Boot, as NVIDIA's module is signed with nobody's key.
    firmware = _node(
        "os",
        {},
        _node("type", {"arch": "x86_64", "machine": "q35"}, text="hvm"),
        _node("loader", {"readonly": "yes", "type": "pflash"}, text=vm.firmware.code),
        _node("nvram", {"template": vm.firmware.variables}, text=vm.nvram),
        _node("boot", {"dev": "hd"}),
    )
    reserve = f"pcie-root-port.pref64-reserve={PREF64_RESERVE}"
    arguments = (_node(f"{{{QEMU}}}arg", {"value": value}) for value in ("-global", reserve))
    return _node(
        "domain",
        {"type": "kvm"},
        _node("name", text=vm.name),
        # libvirt refuses to define a name anew that has another uuid.
        _node("uuid", text=uuid_of(vm.natural_id)),
        _node("metadata", {}, _node(MARK, {"seed": seed_digest, "image": vm.image.sha256})),
        _node("memory", {"unit": "KiB"}, text=str(vm.memory_mib * 1024)),
        _node("vcpu", {"placement": "static"}, text=str(vm.vcpus)),
        firmware,
        _node("features", {}, _node("acpi"), _node("apic")),
        _node(
            "cpu",
            {"mode": "host-passthrough", "check": "none"},
            # As many physical address bits as the host has: OVMF sizes its window for large BARs by them.
            _node("maxphysaddr", {"mode": "passthrough"}),
        ),
        _node("clock", {"offset": "utc"}),
        _node("on_poweroff", text="destroy"),
        _node("on_reboot", text="restart"),
        _node("on_crash", text="restart"),
        _node("devices", {}, *_devices(vm)),
        _node(f"{{{QEMU}}}commandline", {}, *arguments),
    )


def _devices(vm: ServiceVmInputs) -> Iterator[ET.Element]:
    yield _disk("disk", vm.disk, "qcow2", {"dev": "vda", "bus": "virtio"})
    yield _disk("cdrom", vm.seed, "raw", {"dev": "sda", "bus": "sata"}, _node("readonly"))
    yield _node("controller", {"type": "pci", "index": "0", "model": "pcie-root"})
    for index in range(1, len(vm.functions) + 1):
        # Chassis and port are what the guest tells slots apart by: no two root ports share them.
        place = {"chassis": str(index), "port": hex(_FIRST_PORT_NUMBER + index - 1)}
        port = {"type": "pci", "index": str(index), "model": "pcie-root-port"}
        yield _node("controller", port, _node("target", place))
    yield _node(
        "interface",
        {"type": "network"},
        _node("mac", {"address": MAC}),
        _node("source", {"network": vm.network.name}),
        _node("model", {"type": "virtio"}),
    )
    yield _node(
        "serial",
        {"type": "pty"},
        # What the VM says while it boots; started anew with each start of the VM.
        _node("log", {"file": vm.console, "append": "off"}),
        _node("target", {"port": "0"}),
    )
    for index, address in enumerate(vm.functions, start=1):
        # Each behind a root port of its own. `managed='no'`: our unit binds it to vfio-pci at boot, and
        # libvirt never gives it back to a driver.
        yield _node(
            "hostdev",
            {"mode": "subsystem", "type": "pci", "managed": "no"},
            _node("driver", {"name": "vfio"}),
            _node("source", {}, _node("address", pci_attributes(address))),
            _node("address", {"type": "pci", **pci_attributes(f"0000:{index:02x}:00.0")}),
        )
    yield _node("watchdog", {"model": "i6300esb", "action": "reset"})
    yield _node("memballoon", {"model": "none"})
    backend = _node("backend", {"model": "random"}, text="/dev/urandom")
    yield _node("rng", {"model": "virtio"}, backend)


def _disk(
    device: str, path: str, kind: str, target: Mapping[str, str], *more: ET.Element
) -> ET.Element:
    return _node(
        "disk",
        {"type": "file", "device": device},
        _node("driver", {"name": "qemu", "type": kind}),
        _node("source", {"file": path}),
        _node("target", target),
        *more,
    )


def network(net: VmNetwork, *, host: str) -> ET.Element:
    """The host-only network: without `forward` libvirt lets nothing in or out."""
    return _node(
        "network",
        {},
        _node("name", text=net.name),
        _node("uuid", text=uuid_of(f"{host}/network/{net.name}")),
        _node("bridge", {"name": net.bridge, "stp": "on", "delay": "0"}),
        _node("dns", {"enable": "no"}),
        _node("ip", {"address": str(net.host_address), "prefix": str(net.prefix_length)}),
    )


def _node(
    tag: str,
    attributes: Mapping[str, str] | None = None,
    *children: ET.Element,
    text: str | None = None,
) -> ET.Element:
    element = ET.Element(tag, dict(attributes or {}))
    element.text = text
    element.extend(children)
    return element


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
        # What root's own hypervisor says.
        return ET.fromstring(document)  # noqa: S314
    except ET.ParseError:
        return None


def pci_attributes(address: str) -> dict[str, str]:
    """`0000:05:00.0` as libvirt writes it."""
    parts = address.replace(".", ":").split(":")
    return {name: f"0x{part}" for name, part in zip(_PCI_PARTS, parts, strict=True)}


def pci_address(attributes: Mapping[str, str]) -> str | None:
    """The address of libvirt's attributes, or None if they are none."""
    try:
        number, bus, slot, function = (int(attributes.get(key, "0"), 16) for key in _PCI_PARTS)
    except ValueError:
        return None
    return f"{number:04x}:{bus:02x}:{slot:02x}.{function:x}"


def mark_of(root: ET.Element) -> Mapping[str, str] | None:
    """Our mark in a domain's metadata: `seed` and `image`; None if the domain is not ours."""
    mark = root.find(f"metadata/{MARK}")
    return None if mark is None else dict(mark.attrib)


# How what libvirt has differs from what we told it. libvirt completes what it is given: a uuid, PCI
# addresses, controllers, a versioned machine type, memory in KiB, defaults. So a live document is right if
# it says all that ours says, and if no function, disk or network card is in it that ours does not name.

_KILO, _KIBI = 1000, 1024
_UNITS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("b", "bytes"), 1),
    "KB": _KILO,
    "MB": _KILO**2,
    "GB": _KILO**3,
    **dict.fromkeys(("k", "KiB"), _KIBI),
    **dict.fromkeys(("M", "MiB"), _KIBI**2),
    **dict.fromkeys(("G", "GiB"), _KIBI**3),
}


def _attribute(child: str, name: str) -> Callable[[ET.Element], str]:
    return lambda e: next((one.get(name, "").lower() for one in e.iterfind(child)), "")


def _hostdev_key(element: ET.Element) -> str:
    sources = (pci_address(source.attrib) for source in element.iterfind("source/address"))
    return next(sources, None) or "of another kind"


_CLOSED: Final[Mapping[str, tuple[str, Callable[[ET.Element], str]]]] = {
    "disk": ("disk", _attribute("target", "dev")),
    "interface": ("network card", _attribute("mac", "address")),
    "hostdev": ("PCI function", _hostdev_key),
}
"""Devices of which the VM has those that we name and no other: word and identity."""

_KEYS: Final[Mapping[str, Callable[[ET.Element], str]]] = {
    **{tag: key for tag, (_, key) in _CLOSED.items()},
    "controller": lambda e: f"{e.get('type')} {e.get('index')}",
    "feature": lambda e: e.get("name", ""),
    f"{{{QEMU}}}arg": lambda e: e.get("value", ""),
}


def differences(wanted: ET.Element, live: ET.Element, path: str = "") -> Iterator[str]:
    """Each difference that matters, in words; none if the live document is right."""
    for name, value in wanted.attrib.items():
        if wanted.tag == "memory" and name == "unit":
            continue
        found = live.get(name)
        if not _equal(wanted.tag, name, value, found):
            yield f"{path or wanted.tag} has {name} {_shown(found)} instead of {_shown(value)}"
    ours, theirs = (wanted.text or "").strip(), (live.text or "").strip()
    if wanted.tag == "memory":
        if _bytes(wanted) != _bytes(live):
            yield f"{path} is {_size(live)} instead of {_size(wanted)}"
    elif ours and ours != theirs:
        yield f"{path} is {_shown(theirs)} instead of {_shown(ours)}"
    for child in wanted:
        key, word = _KEYS.get(child.tag), _word(child)
        matches = (one for one in live.findall(child.tag) if key is None or key(one) == key(child))
        match = next(matches, None)
        if match is None:
            yield f"{word} is missing"
        else:
            plain = path in {"", "devices", "metadata"}
            yield from differences(child, match, word if plain else f"{path} {word}")
    if wanted.tag == "devices":
        for tag, (word, key) in _CLOSED.items():
            named = {key(element) for element in wanted.findall(tag)}
            for element in live.findall(tag):
                if key(element) not in named:
                    yield f"{word} {key(element)} is there and should not be"


def _word(element: ET.Element) -> str:
    if element.tag == MARK:
        return "our mark"
    word = _CLOSED.get(element.tag, (element.tag.rpartition("}")[2],))[0]
    key_of = _KEYS.get(element.tag)
    return f"{word} {key_of(element)}" if key_of else word


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
