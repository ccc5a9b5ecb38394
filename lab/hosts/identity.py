"""Who a simulated host is: its kind, boot id, ports and host key; made when it is first served, then kept."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from lab.files import read_json, write_json
from lab.hosts.folder import HostFolder
from lab.hosts.hardware.board import board
from lab.hosts.keys import ensure_key


def is_kind(identity: Mapping[str, Any], kind: Mapping[str, str]) -> bool:
    """Whether a host was made as this kind of machine."""
    return all(identity.get(key) == value for key, value in kind.items())


def ensure_identity(folder: HostFolder, kind: Mapping[str, str]) -> dict[str, Any]:
    """The host's identity: made when it is first served, kept from then on.

    `kind`: its platform, condition and operating system.
    """
    folder.path.mkdir(parents=True, exist_ok=True)
    identity: dict[str, Any] | None = read_json(folder.identity)
    if identity is None or not is_kind(identity, kind):
        board(kind["platform"])
        if folder.root.exists():
            shutil.rmtree(folder.root)
            folder.state.unlink(missing_ok=True)
        identity = {**kind, "port": None, "boot_id": str(uuid4())}
    identity["host_key"] = ensure_key(folder.host_key, folder.name)
    write_json(folder.identity, identity)
    return identity
