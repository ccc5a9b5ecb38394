"""Firmware and knobs of a GPU compared with the golden set, and which inventories of a BMC are believed.

An item whose id has the word `GPU` in it (`HGX_FW_GPU_SXM_3`, `HGX_FW_GPU_3`) belongs to the GPU whose module
number ends the id; every other item (BMC, CPLD, switch) to the machine, and thereby to each of its GPUs.

A Redfish collection (DMTF DSP0266) has `Members`, `Members@odata.count` (the members of all pages) and, where
another page follows, `Members@odata.nextLink`. A controller may be broken, or a tenant may have taken it
over. So an inventory that is not whole and consistent is an error with a reason, never a shorter inventory.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from pydantic import Field

from gpuclusters.core.custom_resource import Part
from gpuclusters.lease.model import QuarantineReason

_SHOWN = 120
_GPU_ITEM = re.compile(r"(?:^|_)GPU(?:_.*)?_(\d+)$", re.IGNORECASE)


class Golden(Part):
    """What a GPU must be like before the next tenant gets it."""

    versions: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """Accepted versions by prefix of the inventory item's id; names vary by BMC release."""
    knobs: Mapping[str, str] = Field(default_factory=dict)
    """Expected answer of `nvidia_gpu_tools.py` by name: ecc and mig `enabled` or `disabled`, cc and ppcie
    `on` or `off`."""


def concerns(item: str, module: int) -> bool:
    """Whether an inventory item says something about this GPU: it is the GPU's own, or the machine's."""
    own = _GPU_ITEM.search(item)
    return own is None or int(own[1]) == module


def firmware_findings(
    golden: Golden, module: int, inventory: Mapping[str, str | None]
) -> tuple[str, ...]:
    """What is wrong with the firmware around one GPU, one sentence each; None is no stated version."""
    found = []
    for prefix, accepted in sorted(golden.versions.items()):
        items = sorted(i for i in inventory if i.startswith(prefix) and concerns(i, module))
        if not items:
            found.append(f"the inventory has no item {prefix}* for GPU {module}")
        found += [
            f"{item} is {shown(inventory[item])}, accepted is {' or '.join(accepted) or 'none'}"
            for item in items
            if inventory[item] not in accepted
        ]
    return tuple(found)


def knob_findings(golden: Golden, knobs: Mapping[str, str]) -> tuple[str, ...]:
    """Which switches are not as they must be, one sentence each; a switch not read is wrong."""
    return tuple(
        f"{name} is {shown(knobs.get(name))}, must be {wanted}"
        for name, wanted in sorted(golden.knobs.items())
        if knobs.get(name) != wanted
    )


def shown(value: str | None) -> str:
    """As it goes into a message: a controller may say anything, of any length."""
    if value is None:
        return "not stated"
    clean = "".join(c if c.isprintable() else "?" for c in value)
    return clean if len(clean) <= _SHOWN else f"{clean[:_SHOWN]}…"


INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory"
MOST_PAGES = 100
MOST_ITEMS = 4096
_COUNT, _NEXT, _ADDRESS = "Members@odata.count", "Members@odata.nextLink", "@odata.id"
_PORTS = {"https": 443, "http": 80}

ASKED_AGAIN = (
    QuarantineReason.INVENTORY_TRUNCATED,
    QuarantineReason.INVENTORY_SLOW,
    QuarantineReason.INVENTORY_INCOMPLETE,
    QuarantineReason.INVENTORY_DUPLICATED,
)
"""What a controller may show for a moment, while it restarts or its firmware is updated."""


class InventoryError(Exception):
    """The answer is not believed: what it says, in words that follow the controller's name."""

    def __init__(self, reason: QuarantineReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Listing:
    """The inventory's items, page by page, of one origin; `InventoryError` if it is not believed."""

    def __init__(self, url: str) -> None:
        self.first = urljoin(url, INVENTORY)
        self._pages: set[str] = {self.first}
        self.items: dict[str, str] = {}
        """Address by id, once the last page was added."""
        self._count: int | None = None

    def add(self, page_url: str, page: Mapping[str, Any]) -> str | None:
        """Take a page; answers the address of the next one, None if it was the last."""
        members, count = page.get("Members"), page.get(_COUNT)
        if not isinstance(members, list):
            raise _malformed(f"has a page without a list of Members: {shown(page_url)}")
        if not isinstance(count, int) or isinstance(count, bool):
            raise _malformed(f"has a page without a number {_COUNT}: {shown(page_url)}")
        if self._count is not None and count != self._count:
            said = f"says on one page that it has {self._count} items, on another {count}"
            raise InventoryError(QuarantineReason.INVENTORY_INCOMPLETE, said)
        self._count = count
        for member in members:
            self._add(page_url, member)
        if _NEXT in page:
            return self._following(page_url, page[_NEXT])
        if len(self.items) != count:
            said = f"says that it has {count} items and lists {len(self.items)}"
            raise InventoryError(QuarantineReason.INVENTORY_INCOMPLETE, said)
        return None

    def _add(self, page_url: str, member: object) -> None:
        link = member.get(_ADDRESS) if isinstance(member, dict) else None
        if not isinstance(link, str):
            raise _malformed("lists an item without an address")
        address = self._resolved(page_url, link)
        # Its last segment, as DSP0266 has it.
        item = unquote(urlsplit(address).path.rstrip("/").rpartition("/")[2])
        if not item:
            raise _malformed(f"lists an item without a name: {shown(link)}")
        if item in self.items:
            raise InventoryError(
                QuarantineReason.INVENTORY_DUPLICATED, f"lists {shown(item)} twice"
            )
        if len(self.items) == MOST_ITEMS:
            many = f"lists more than {MOST_ITEMS:,} items"
            raise InventoryError(QuarantineReason.INVENTORY_TOO_LARGE, many)
        self.items[item] = address

    def _following(self, page_url: str, link: object) -> str:
        if not isinstance(link, str):
            raise _malformed(f"has a link to a next page that is no text: {shown(str(link))}")
        address = self._resolved(page_url, link)
        if address in self._pages or len(self._pages) == MOST_PAGES:
            often = "a page that was read already" if address in self._pages else "ever more pages"
            said = f"links to {often} as the next one: {shown(link)}"
            raise InventoryError(QuarantineReason.INVENTORY_LOOPED, said)
        self._pages.add(address)
        return address

    def _resolved(self, page_url: str, link: str) -> str:
        """The whole address of a link on a page, if it leads to the same scheme, host and port."""
        try:
            parts = urlsplit(urljoin(page_url, link))
            same = _origin(parts.geturl()) == _origin(self.first) and "@" not in parts.netloc
        except ValueError:
            raise _malformed(f"has a link that is no address: {shown(link)}") from None
        if not same:
            said = f"links to another place, which was not asked: {shown(link)}"
            raise InventoryError(QuarantineReason.INVENTORY_LINK_REFUSED, said)
        # Its place is the configuration's, whatever the link makes of it.
        own = urlsplit(self.first)
        return own._replace(path=parts.path, query=parts.query).geturl()


def version_of(item: str, body: Mapping[str, Any]) -> str | None:
    """The version that an item's own page states; None if it states none."""
    if body.get("Id") != item:
        raise _malformed(f"answers for {shown(item)} with the item {shown(str(body.get('Id')))}")
    version = body.get("Version")
    if version is not None and not isinstance(version, str):
        raise _malformed(f"states a version of {shown(item)} that is no text")
    return version


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _malformed(message: str) -> InventoryError:
    return InventoryError(QuarantineReason.INVENTORY_MALFORMED, message)
