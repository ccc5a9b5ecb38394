"""Who a simulated host is: its kind, boot id, ports and host key; made when it is first served, then kept."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lab.files import read_json, write_json
from lab.hosts.folder import HostFolder
from lab.hosts.hardware.board import board


def ensure_key(private: Path, comment: str) -> str:
    """The public key, in OpenSSH's one-line form, of the ed25519 key at `private`.

    Makes the key when there is none: `private` with mode 0600, `private.pub` beside it. Of two
    processes that make it at once one wins and both return the winner's.
    """
    public = private.with_name(private.name + ".pub")
    if not private.exists():
        private.parent.mkdir(parents=True, exist_ok=True)
        pem = Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        create(private, pem)
    line = f"{public_key(private)} {comment}"
    if not public.exists() or public.read_text().strip() != line:
        public.write_text(line + "\n")
    return line.rsplit(" ", 1)[0]


def public_key(private: Path) -> str:
    """`ssh-ed25519 AAAA…` of a private key in a file."""
    key = serialization.load_ssh_private_key(private.read_bytes(), password=None)
    encoded = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return encoded.decode()


def create(path: Path, content: bytes) -> None:
    """Write a new file whole or not at all, and never over one that is there."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return
    finally:
        temporary.unlink()


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
