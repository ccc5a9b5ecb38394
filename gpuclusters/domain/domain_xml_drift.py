"""How what libvirt has differs from what we told it, in words; what libvirt adds by itself is no difference.

libvirt completes what it is given: a uuid, PCI addresses, controllers, a versioned machine type, memory in
KiB, defaults. So a live document is right if it says all that ours says, and if nothing entered the VM that
ours does not name: another function, disk or network card is drift.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gpuclusters.domain.domain_xml import MARK, pci_address

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
