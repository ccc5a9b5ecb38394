"""How a host is reached, what is on it (files, units, PCI functions), and the inputs of `HostFile`."""

import base64
import binascii
import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import AfterValidator, Field

from gpuclusters.core.model import Strict, matches

KEY_TYPES: Mapping[str, int] = {
    "ssh-ed25519": 32,
    "ecdsa-sha2-nistp256": 65,
    "ecdsa-sha2-nistp384": 97,
    "ecdsa-sha2-nistp521": 133,
    "ssh-rsa": 0,
}
"""Length of the key itself in bytes, by type (RFC 8709, RFC 5656); RSA has none that is fixed."""


def parse_host_key(text: str) -> str:
    """The key type and key of an OpenSSH public key line, without its comment."""
    hint = "take the line that `ssh-keyscan HOST` prints and leave out the host name"
    fields = text.split()
    if len(fields) < 2:
        raise ValueError(f"a host key has a type and a key, like 'ssh-ed25519 AAAA...'; {hint}")
    kind, encoded = fields[0], fields[1]
    if kind not in KEY_TYPES:
        raise ValueError(f"{kind!r} is no host key type; known are {', '.join(KEY_TYPES)}; {hint}")
    try:
        parts = _parts(base64.b64decode(encoded, validate=True))
    except (binascii.Error, struct.error) as error:
        raise ValueError(f"the host key is not complete; {hint}") from error
    if parts[:1] != [kind.encode()]:
        raise ValueError(f"the host key says {kind} but holds another type; {hint}")
    if KEY_TYPES[kind] not in (0, len(parts[-1])):
        raise ValueError(f"the host key is not complete; {hint}")
    return f"{kind} {encoded}"


def _parts(raw: bytes) -> list[bytes]:
    """What a public key is made of, each after its length (RFC 4253, 6.6); struct.error if one is cut off."""
    parts, at = [], 0
    while at < len(raw):
        (length,) = struct.unpack_from(">I", raw, at)
        parts.append(struct.unpack_from(f"{length}s", raw, at + 4)[0])
        at += 4 + length
    return parts


class IapTunnel(Strict):
    """How a machine on Google Cloud is reached that no network leads to: through Identity-Aware Proxy."""

    project: Annotated[
        str, matches(r"[a-z][a-z0-9.:-]{4,98}[a-z0-9]", "write the id of a Google Cloud project")
    ]
    zone: Annotated[str, matches(r"[a-z]+-[a-z]+[0-9]+-[a-z]", "write a zone like us-central1-a")]
    instance: Annotated[
        str, matches(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", "write the machine's name on Google Cloud")
    ]


class HostConnection(Strict):
    """Where a host's SSH server listens and which key it must show.

    `host` is the name that people use for the machine and is part of the identity of what is
    kept on it. Address, port, user and key say how to get there and may change.
    """

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
    def target(self) -> str:
        return f"{self.host} ({self.address}:{self.port})"


UNIT_FOLDER = "/etc/systemd/system"
# What is read back has to pass through one command's output, which is capped.
MAX_CONTENT_BYTES = 512 * 1024


def check_path(path: str) -> str:
    """The path, if it is that of a file, absolute and goes nowhere else than it says."""
    parts = path.split("/")
    if not path.startswith("/"):
        raise ValueError("the path must be absolute; write it from / on")
    if ".." in parts or "." in parts[1:]:
        raise ValueError("the path must not contain '.' or '..'; write where the file really is")
    if path.endswith("/") or "//" in path:
        raise ValueError("the path must name a file; leave out empty parts and the last '/'")
    if not path.isprintable():
        raise ValueError("the path must not contain control characters")
    return path


def check_mode(mode: str) -> str:
    """An octal mode with four digits; three are accepted as with chmod."""
    if not (3 <= len(mode) <= 4 and set(mode) <= set("01234567")):
        raise ValueError("the mode must be octal digits, like '0644'")
    return mode.zfill(4)


def check_content(content: str) -> str:
    """The content, if it can be read back."""
    size = len(content.encode("utf-8", errors="replace"))
    if size > MAX_CONTENT_BYTES:
        raise ValueError(
            f"the content has {size} bytes, at most {MAX_CONTENT_BYTES} can be kept; "
            "distribute large files with a package"
        )
    if "\0" in content:
        raise ValueError("the content must be text; it holds a NUL byte")
    return content


def sha256_of(content: bytes) -> str:
    """Lower-case hexadecimal digest."""
    return hashlib.sha256(content).hexdigest()


def differing(wanted: Mapping[str, str], digests: Mapping[str, str]) -> dict[str, str]:
    """Those of the texts, by path, that the host has not or has otherwise; `digests` are its sha256."""
    return {p: text for p, text in wanted.items() if digests.get(p) != sha256_of(text.encode())}


class HostFileSpec(Strict):
    """Inputs of a host file: where, what, and whether an existing other file may be taken over."""

    connection: HostConnection
    path: Annotated[str, AfterValidator(check_path)]
    content: Annotated[str, AfterValidator(check_content)]
    mode: Annotated[str, AfterValidator(check_mode)] = "0644"
    owner: Annotated[
        str,
        matches(
            r"[A-Za-z_][A-Za-z0-9_.-]{0,31}:[A-Za-z_][A-Za-z0-9_.-]{0,31}",
            "write user and group by name, like 'root:root'",
        ),
    ] = "root:root"
    adopt: bool = False

    @property
    def natural_id(self) -> str:
        return f"{self.connection.host}:{self.path}"


@dataclass(frozen=True, slots=True)
class LiveFile:
    content: bytes
    mode: str
    owner: str
    sha256: str


@dataclass(frozen=True, slots=True)
class PciFunction:
    """What the kernel says about one PCI function."""

    address: str
    present: bool
    iommu_group: str | None = None
    """None while the machine has no IOMMU switched on."""
    driver: str | None = None
    users: tuple[int, ...] = ()
    """Processes that hold its group open: a VM that owns it, as a rule."""
    vfio_device: str | None = None
    """Its own character device, like "vfio3", on kernels that have that and /dev/iommu (IOMMUFD)."""


@dataclass(frozen=True, slots=True)
class UnitState:
    """A unit as systemd has it, in systemctl's words."""

    enabled: str
    active: str
    stale: bool = False
    """Whether systemd has not read its file since it was changed."""

    def is_enabled(self) -> bool:
        """Whether it starts at boot; a unit without [Install] is started by others."""
        return self.enabled in {"enabled", "static", "enabled-runtime", "alias", "indirect"}


class PciDevices(Protocol):
    """PCI functions of one host."""

    def inspect(self, addresses: Sequence[str]) -> Mapping[str, PciFunction]:
        """What the kernel says now about each address."""
