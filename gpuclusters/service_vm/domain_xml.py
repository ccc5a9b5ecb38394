"""libvirt's XML of the service VM and of its network: `manifests/*.xml`, filled as documents, not as text."""

import copy
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from string import Template
from typing import Final
from uuid import UUID, uuid5

from gpuclusters.core import scripts
from gpuclusters.service_vm.model import MAC, ServiceVmInputs, VmNetwork

QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
OURS = "https://gpu-clusters.dev/libvirt/service-vm/1"
"""Namespace of our mark in the metadata: whose the domain is, and what it was started with."""
MARK = f"{{{OURS}}}service-vm"

_FIRST_PORT_NUMBER = 0x10
_PCI_PARTS = ("domain", "bus", "slot", "function")
_UUIDS = UUID("6f0d2c53-0f0e-5d0c-9b7a-3f5b5ce0a2d4")

ET.register_namespace("qemu", QEMU)
ET.register_namespace("gpu-clusters", OURS)


def domain(vm: ServiceVmInputs, *, seed_digest: str) -> ET.Element:
    """The domain; a running VM with another digest of what cloud-init is told has to restart."""
    root = ET.fromstring(scripts.read("service_vm/manifests/domain.xml"))  # noqa: S314 (ours)
    (devices,) = root.iterfind("devices")
    for one in (devices.findall("controller")[1], *devices.findall("hostdev")):
        place = [*devices].index(one)
        devices.remove(one)
        for index, address in enumerate(vm.functions, start=1):
            port = {"index": str(index), "port": hex(_FIRST_PORT_NUMBER + index - 1)}
            port |= {"bus_of_port": f"0x{index:02x}", **pci_attributes(address)}
            devices.insert(place + index - 1, _filled(copy.deepcopy(one), port))
    return _filled(
        root,
        {
            "name": vm.name,
            "uuid": uuid_of(vm.natural_id),
            "seed_digest": seed_digest,
            "image": vm.image.sha256,
            "memory_kib": str(vm.memory_mib * 1024),
            "vcpus": str(vm.vcpus),
            "firmware": vm.firmware.code,
            "variables": vm.firmware.variables,
            "nvram": vm.nvram,
            "disk": vm.disk,
            "seed": vm.seed,
            "mac": MAC,
            "network": vm.network.name,
            "console": vm.console,
        },
    )


def network(net: VmNetwork, *, host: str) -> ET.Element:
    root = ET.fromstring(scripts.read("service_vm/manifests/network.xml"))  # noqa: S314 (ours)
    words = {"name": net.name, "uuid": uuid_of(f"{host}/network/{net.name}"), "bridge": net.bridge}
    words |= {"address": str(net.host_address), "prefix": str(net.prefix_length)}
    return _filled(root, words)


def _filled(root: ET.Element, words: Mapping[str, str]) -> ET.Element:
    """With words in place of `${NAME}` in texts and attributes."""
    for element in root.iter():
        element.text = Template((element.text or "").strip()).substitute(words) or None
        element.tail = None
        for name, value in element.attrib.items():
            element.set(name, Template(value).substitute(words))
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
