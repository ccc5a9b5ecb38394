"""Which answers of a management controller are believed to be its firmware inventory.

A Redfish collection (DMTF DSP0266) has `Members`, `Members@odata.count` (the members of all pages) and, where
another page follows, `Members@odata.nextLink`. A controller may be broken, or a tenant may have taken it
over. So an inventory that is not whole and consistent is an error with a reason, never a shorter inventory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from gpuclusters.lease.firmware import shown
from gpuclusters.lease.state import Reason

INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory"
MOST_PAGES = 100
MOST_ITEMS = 4096
_COUNT, _NEXT, _ADDRESS = "Members@odata.count", "Members@odata.nextLink", "@odata.id"
_PORTS = {"https": 443, "http": 80}

ASKED_AGAIN = frozenset(
    {
        Reason.INVENTORY_TRUNCATED,
        Reason.INVENTORY_SLOW,
        Reason.INVENTORY_INCOMPLETE,
        Reason.INVENTORY_DUPLICATED,
    }
)
"""What a controller may show for a moment, while it restarts or its firmware is updated."""


class InventoryError(Exception):
    """The answer is not believed: what it says, in words that follow the controller's name."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Listing:
    """The inventory's items, page by page. Addresses are whole URLs of one origin."""

    def __init__(self, url: str) -> None:
        """`url` is the controller's, as the configuration has it."""
        self.first = urljoin(url, INVENTORY)
        self._pages: set[str] = {self.first}
        self._items: dict[str, str] = {}
        self._count: int | None = None

    def add(self, page_url: str, page: Mapping[str, Any]) -> str | None:
        """Take a page; give the address of the next one, None if it was the last.

        Raises:
            InventoryError: the page, or what it leads to, is not believed.
        """
        members, count = page.get("Members"), page.get(_COUNT)
        if not isinstance(members, list):
            raise _malformed(f"has a page without a list of Members: {shown(page_url)}")
        if not isinstance(count, int) or isinstance(count, bool):
            raise _malformed(f"has a page without a number {_COUNT}: {shown(page_url)}")
        if self._count is not None and count != self._count:
            raise InventoryError(
                Reason.INVENTORY_INCOMPLETE,
                f"says on one page that it has {self._count} items, on another {count}",
            )
        self._count = count
        for member in members:
            self._add(page_url, member)
        if _NEXT not in page:
            self._whole()
            return None
        return self._following(page_url, page[_NEXT])

    @property
    def items(self) -> Mapping[str, str]:
        """Address by id, once the last page was added."""
        return dict(self._items)

    def _add(self, page_url: str, member: object) -> None:
        link = member.get(_ADDRESS) if isinstance(member, dict) else None
        if not isinstance(link, str):
            raise _malformed("lists an item without an address")
        address = self._resolved(page_url, link)
        item = id_of(address)
        if not item:
            raise _malformed(f"lists an item without a name: {shown(link)}")
        if item in self._items:
            raise InventoryError(Reason.INVENTORY_DUPLICATED, f"lists {shown(item)} twice")
        if len(self._items) == MOST_ITEMS:
            raise InventoryError(
                Reason.INVENTORY_TOO_LARGE, f"lists more than {MOST_ITEMS:,} items"
            )
        self._items[item] = address

    def _following(self, page_url: str, link: object) -> str:
        if not isinstance(link, str):
            raise _malformed(f"has a link to a next page that is no text: {shown(str(link))}")
        address = self._resolved(page_url, link)
        if address in self._pages or len(self._pages) == MOST_PAGES:
            often = "a page that was read already" if address in self._pages else "ever more pages"
            raise InventoryError(
                Reason.INVENTORY_LOOPED, f"links to {often} as the next one: {shown(link)}"
            )
        self._pages.add(address)
        return address

    def _whole(self) -> None:
        if len(self._items) != self._count:
            raise InventoryError(
                Reason.INVENTORY_INCOMPLETE,
                f"says that it has {self._count} items and lists {len(self._items)}",
            )

    def _resolved(self, page_url: str, link: str) -> str:
        """The whole address of a link on a page.

        Raises:
            InventoryError: it leads to another scheme, host or port, or is no address.
        """
        try:
            parts = urlsplit(urljoin(page_url, link))
            same = _origin(parts.geturl()) == _origin(self.first) and "@" not in parts.netloc
        except ValueError:
            raise _malformed(f"has a link that is no address: {shown(link)}") from None
        if not same:
            raise InventoryError(
                Reason.INVENTORY_LINK_REFUSED,
                f"links to another place, which was not asked: {shown(link)}",
            )
        # Its place is the configuration's, whatever the link makes of it.
        own = urlsplit(self.first)
        return own._replace(path=parts.path, query=parts.query).geturl()


def version_of(item: str, body: Mapping[str, Any]) -> str | None:
    """The version that an item's own page states; None if it states none.

    Raises:
        InventoryError: the page is another item's, or its version is no text.
    """
    if body.get("Id") != item:
        raise _malformed(f"answers for {shown(item)} with the item {shown(str(body.get('Id')))}")
    version = body.get("Version")
    if version is not None and not isinstance(version, str):
        raise _malformed(f"states a version of {shown(item)} that is no text")
    return version


def id_of(address: str) -> str:
    """The id of the item at an address: its last segment, as DSP0266 has it."""
    return unquote(urlsplit(address).path.rstrip("/").rpartition("/")[2])


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _malformed(message: str) -> InventoryError:
    return InventoryError(Reason.INVENTORY_MALFORMED, message)
