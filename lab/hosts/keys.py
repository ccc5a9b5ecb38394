"""SSH keys of the lab: one for the client, one per host; made once and then kept."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


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
