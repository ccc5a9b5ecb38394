"""How a host is reached: plain data, no secret in it."""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from gpuclusters.domain.text import matches

KEY_TYPES = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
)


def parse_host_key(text: str) -> str:
    """The key type and key of an OpenSSH public key line, without its comment.

    Raises:
        ValueError: not a public key of a type that servers present (`KEY_TYPES`).
    """
    hint = "take the line that `ssh-keyscan HOST` prints and leave out the host name"
    fields = text.split()
    if len(fields) < 2:
        raise ValueError(f"a host key has a type and a key, like 'ssh-ed25519 AAAA...'; {hint}")
    kind, encoded = fields[0], fields[1]
    if kind not in KEY_TYPES:
        raise ValueError(f"{kind!r} is no host key type; known are {', '.join(KEY_TYPES)}; {hint}")
    try:
        raw = base64.b64decode(encoded, validate=True)
        (length,) = struct.unpack_from(">I", raw)
    except (binascii.Error, struct.error) as error:
        raise ValueError(f"the host key is not complete base64; {hint}") from error
    if raw[4 : 4 + length] != kind.encode():
        raise ValueError(f"the host key says {kind} but holds another type; {hint}")
    return f"{kind} {encoded}"


class IapTunnel(BaseModel):
    """How a machine on Google Cloud is reached that no network leads to: through Identity-Aware Proxy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    project: Annotated[
        str, matches(r"[a-z][a-z0-9.:-]{4,98}[a-z0-9]", "write the id of a Google Cloud project")
    ]
    zone: Annotated[str, matches(r"[a-z]+-[a-z]+[0-9]+-[a-z]", "write a zone like us-central1-a")]
    instance: Annotated[
        str, matches(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", "write the machine's name on Google Cloud")
    ]


class HostConnection(BaseModel):
    """Where a host's SSH server listens and which key it must show.

    `host` is the name that people use for the machine and is part of the identity of what is
    kept on it. Address, port, user and key say how to get there and may change.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: Annotated[
        str,
        matches(
            r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?",
            "a host is named with letters, digits, '-' and '.', like 'hgx-01'",
        ),
    ]
    address: Annotated[
        str,
        matches(r"[A-Za-z0-9_.:%-]{1,253}", "write an IP address or a DNS name, without the port"),
    ]
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    user: Annotated[
        str, matches(r"[a-z_][a-z0-9_-]{0,31}", "write a Linux login name, like 'root'")
    ] = "root"
    host_key: Annotated[str, AfterValidator(parse_host_key)]
    iap: IapTunnel | None = None
    """The tunnel that leads there; the address is then that within its network."""
    machine: Annotated[str, Field(max_length=64)] = ""
    """Which machine answers there, where it is made by this program: when it was made anew under the same
    name, everything on it is compared and brought back."""

    @property
    def place(self) -> str:
        """Name, address and port, as errors show them."""
        return f"{self.host} ({self.address}:{self.port})"
