"""One layer of an image: a tar whose bytes depend on nothing but what is in it."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Folder:
    path: str
    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class File:
    """A file of the image, with the content of a file of the machine or with given bytes."""

    path: str
    content: Path | bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Link:
    path: str
    target: str


Entry = Folder | File | Link


@dataclass(frozen=True, slots=True)
class KeptLayer:
    """A layer that is written already, and its SHA-256."""

    file: Path
    digest: str


def write(entries: Iterable[Entry], out: BinaryIO) -> str:
    """Write the layer; gives its SHA-256.

    Order, times, owners and names of users are fixed, and folders are made for what lies in them, so that the
    same entries give the same bytes on every machine, in whatever order they come.

    Raises:
        ValueError: two entries have one path.
    """
    digest = hashlib.sha256()
    sink = _Hashing(out, digest)
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        for path, entry in sorted(_with_folders(entries).items()):
            _add(tar, path, entry)
    return digest.hexdigest()


def _with_folders(entries: Iterable[Entry]) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for entry in entries:
        path = entry.path.strip("/")
        known = found.get(path)
        if known is not None and known != entry:
            raise ValueError(f"the layer has two entries /{path}")
        found[path] = entry
    for path in list(found):
        for parent in Path(path).parents:
            if str(parent) != "." and str(parent) not in found:
                found[str(parent)] = Folder(str(parent))
    return found


def _add(tar: tarfile.TarFile, path: str, entry: Entry) -> None:
    # A TarInfo of its own has time and owners zero and no names.
    info = tarfile.TarInfo(path)
    if isinstance(entry, Folder):
        info.type, info.mode = tarfile.DIRTYPE, entry.mode
        tar.addfile(info)
    elif isinstance(entry, Link):
        info.type, info.mode, info.linkname = tarfile.SYMTYPE, 0o777, entry.target
        tar.addfile(info)
    elif isinstance(entry.content, bytes):
        info.mode, info.size = entry.mode, len(entry.content)
        tar.addfile(info, io.BytesIO(entry.content))
    else:
        info.mode, info.size = entry.mode, entry.content.stat().st_size
        with entry.content.open("rb") as source:
            tar.addfile(info, source)


class _Hashing:
    """A file for `tarfile` to write to, which counts what it writes."""

    def __init__(self, out: BinaryIO, digest: hashlib._Hash) -> None:
        self._out = out
        self._digest = digest
        self._position = 0

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        self._position += len(data)
        return self._out.write(data)

    def tell(self) -> int:
        return self._position
