"""The Redfish documents of a simulated host's management controller: what is at which address.

As far as a reader of firmware needs it: the service root and the firmware inventory. Every
other address is 404, every method but GET and HEAD 405, and all but the root asks for a login.
"""

import base64
import binascii
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.hosts.hardware.board import Board
from lab.hosts.model import BMC_USER

_ROOT = "/redfish/v1"
_INVENTORY = f"{_ROOT}/UpdateService/FirmwareInventory"
_OPEN = {"/redfish", _ROOT}
"""What the standard shows without a login."""
_OK, _UNAUTHORIZED, _NOT_FOUND, _NOT_ALLOWED = 200, 401, 404, 405


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return (json.dumps(self.body, indent=2) + "\n").encode()


class Redfish:
    """One controller. `inventory` says which firmware there is at the moment of the question."""

    def __init__(
        self, board: Board, password: str, inventory: Callable[[], dict[str, str]]
    ) -> None:
        self._board = board
        self._password = password
        self._inventory = inventory

    def answer(self, method: str, target: str, authorization: str | None) -> Reply:
        """The answer to one request. `target` is as it came, `authorization` the header."""
        path = target.partition("?")[0].rstrip("/") or "/"
        if path not in _OPEN and not self._may(authorization):
            text = (
                "The authentication credentials included with this request are missing or invalid."
            )
            headers = {"WWW-Authenticate": 'Basic realm="Redfish"'}
            return _error(_UNAUTHORIZED, "Base.1.18.NoValidSession", text, headers)
        if method not in {"GET", "HEAD"}:
            text = f"The HTTP method {method} is not allowed on this resource."
            headers = {"Allow": "GET, HEAD"}
            return _error(_NOT_ALLOWED, "Base.1.18.OperationNotAllowed", text, headers)
        found = self._document(path)
        if found is None:
            text = f"The requested resource {path} was not found."
            return _error(_NOT_FOUND, "Base.1.18.ResourceNotFound", text)
        return Reply(_OK, found)

    def _may(self, authorization: str | None) -> bool:
        scheme, _, value = (authorization or "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            given = base64.b64decode(value, validate=True)
        except binascii.Error:
            return False
        return hmac.compare_digest(given, f"{BMC_USER}:{self._password}".encode())

    def _document(self, path: str) -> dict[str, Any] | None:
        fixed: dict[str, Callable[[], dict[str, Any]]] = {
            "/redfish": lambda: {"v1": f"{_ROOT}/"},
            _ROOT: self._root,
            f"{_ROOT}/UpdateService": self._update_service,
            _INVENTORY: lambda: _collection(
                _INVENTORY, "SoftwareInventory", "Firmware Inventory Collection", self._inventory()
            ),
        }
        if path in fixed:
            return fixed[path]()
        folder, _, name = path.rpartition("/")
        if folder == _INVENTORY and name in (items := self._inventory()):
            return _item(name, items[name])
        return None

    def _root(self) -> dict[str, Any]:
        return {
            "@odata.id": _ROOT,
            "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot",
            "Id": "RootService",
            "Name": "Root Service",
            "Product": f"{self._board.product} (simulated)",
            "RedfishVersion": "1.18.0",
            "Vendor": self._board.vendor,
            "UpdateService": {"@odata.id": f"{_ROOT}/UpdateService"},
        }

    def _update_service(self) -> dict[str, Any]:
        return {
            "@odata.id": f"{_ROOT}/UpdateService",
            "@odata.type": "#UpdateService.v1_11_0.UpdateService",
            "Id": "UpdateService",
            "Name": "Update Service",
            "FirmwareInventory": {"@odata.id": _INVENTORY},
            "ServiceEnabled": True,
            "Status": {"Health": "OK", "State": "Enabled"},
        }


def _item(name: str, version: str) -> dict[str, Any]:
    return {
        "@odata.id": f"{_INVENTORY}/{name}",
        "@odata.type": "#SoftwareInventory.v1_4_0.SoftwareInventory",
        "Id": name,
        "Name": "Software Inventory",
        "Description": f"{name} image",
        "Manufacturer": "NVIDIA",
        "Status": {"Health": "OK", "State": "Enabled"},
        "Updateable": "InfoROM" not in name,
        "Version": version,
    }


def _collection(path: str, kind: str, title: str, members: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "@odata.id": path,
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "Name": title,
        "Members": [{"@odata.id": f"{path}/{name}"} for name in members],
        "Members@odata.count": len(members),
    }


def _error(status: int, code: str, text: str, headers: Mapping[str, str] | None = None) -> Reply:
    message = {"@odata.type": "#Message.v1_1_2.Message", "MessageId": code, "Message": text}
    body = {"error": {"code": code, "message": text, "@Message.ExtendedInfo": [message]}}
    return Reply(status, body, headers or {})
