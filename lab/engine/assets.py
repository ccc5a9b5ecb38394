"""Hashes of assets and archives: by them is told whether a file has changed.

They are those of Pulumi's own engine, so that a stack can go from one to the other: of an asset or
an archive file the SHA-256 of its bytes, of a folder or a collection that of a tar stream.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import posixpath
import tarfile
import urllib.parse
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from lab.engine.values import ARCHIVE, ASSET, SIGNATURE, Asset, Secret, Value, Values, walk

_BLOCK = 512
_ARCHIVES = (".tar", ".tgz", ".tar.gz", ".zip", ".jar")
_BOOKKEEPING = ".pulumi"


class AssetError(ValueError):
    """An asset that cannot be read; the message is for the user."""


def hashed(values: Values, folder: pathlib.Path) -> Values:
    """The values with hashes in all assets; paths are relative to `folder`, the program's.

    Raises:
        AssetError: an asset cannot be read.
    """
    for key, value in values.items():
        if any(isinstance(v, Asset) for v in walk(value)):
            try:
                values = {**values, key: _hashed(value, folder)}
            except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
                raise AssetError(f'failed to compute asset hash for "{key}": {error}') from None
    return values


def _hashed(value: Value, folder: pathlib.Path) -> Value:
    if isinstance(value, list):
        return [_hashed(v, folder) for v in value]
    if isinstance(value, dict):
        return {k: _hashed(v, folder) for k, v in value.items()}
    if isinstance(value, Secret):
        return Secret(_hashed(value.value, folder))
    if isinstance(value, Asset):
        return _with_hash(value, folder)
    return value


def _with_hash(asset: Asset, folder: pathlib.Path) -> Asset:
    fields = dict(asset.fields)
    if isinstance(members := fields.get("assets"), Mapping):
        fields["assets"] = {
            name: {SIGNATURE: member.kind, **member.fields}
            for name, member in ((n, _with_hash(_member(n, m), folder)) for n, m in members.items())
        }
    if not fields.get("hash"):
        fields["hash"] = _hash(Asset(asset.kind, fields), folder)
    return Asset(asset.kind, fields)


def _member(name: str, wire: Any) -> Asset:
    kind = wire.get(SIGNATURE) if isinstance(wire, Mapping) else None
    if kind not in (ASSET, ARCHIVE):
        raise AssetError(f"archive member '{name}' is not an asset or archive")
    return Asset(str(kind), {k: v for k, v in wire.items() if k != SIGNATURE})


def _hash(asset: Asset, folder: pathlib.Path) -> str:
    digest = hashlib.sha256()
    if asset.kind == ASSET:
        digest.update(_content(asset, folder))
    elif (file := _archive_file(asset, folder)) is not None:
        digest.update(file.read_bytes())
    else:
        seen: set[str] = set()
        for name, content in _members(asset, folder):
            if name not in seen:
                seen.add(name)
                digest.update(_header(name, len(content)) + content)
                digest.update(bytes(-len(content) % _BLOCK))
        digest.update(bytes(2 * _BLOCK))
    return digest.hexdigest()


def _content(asset: Asset, folder: pathlib.Path) -> bytes:
    if isinstance(text := asset.fields.get("text"), str) and "path" not in asset.fields:
        return text.encode()
    path = _path(asset, folder)
    if path.is_dir():
        raise AssetError(f"asset path '{path}' is a directory; try using an archive")
    return path.read_bytes()


def _path(asset: Asset, folder: pathlib.Path) -> pathlib.Path:
    if path := asset.fields.get("path"):
        return folder / str(path)
    uri = str(asset.fields.get("uri", ""))
    parts = urllib.parse.urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise AssetError(
            f"the asset '{uri}' would have to be downloaded, which the embedded engine does not do;"
            " use a file of this machine, or run this stack with the Pulumi CLI"
        )
    return pathlib.Path(urllib.parse.unquote(parts.path))


def _archive_file(archive: Asset, folder: pathlib.Path) -> pathlib.Path | None:
    if "assets" in archive.fields:
        return None
    path = _path(archive, folder)
    if path.name.endswith(_ARCHIVES):
        return path
    if not path.is_dir():
        raise AssetError(f"'{path}' is neither a recognized archive type nor a directory")
    return None


def _members(asset: Asset, folder: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of all files of an archive, flat, in the order of its hash."""
    if "assets" not in asset.fields:
        file = _archive_file(asset, folder)
        yield from _in_folder(_path(asset, folder), "") if file is None else _in_file(file)
        return
    for name in sorted(asset.fields["assets"]):
        member = _member(name, asset.fields["assets"][name])
        if member.kind == ASSET:
            yield name, _content(member, folder)
        else:
            inside = _members(member, folder)
            yield from ((posixpath.normpath(f"{name}/{n}"), content) for n, content in inside)


def _in_folder(folder: pathlib.Path, prefix: str) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.iterdir(), key=os.fsencode):
        name = path.name
        if name == _BOOKKEEPING or (path.is_symlink() and path.is_dir()):
            continue
        if path.is_dir():
            yield from _in_folder(path, f"{prefix}{name}/")
        else:
            yield prefix + name, path.read_bytes()


def _in_file(file: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    if file.suffix in (".zip", ".jar"):
        with zipfile.ZipFile(file) as packed:
            for entry in packed.infolist():
                if not entry.is_dir():
                    yield posixpath.normpath(entry.filename), packed.read(entry)
        return
    with tarfile.open(file) as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                yield posixpath.normpath(member.name), content.read()


def _header(name: str, size: int) -> bytes:
    """A tar header as Go writes it for a regular file of mode 0600 without owner and time."""
    info = tarfile.TarInfo(name)
    info.mode, info.size = 0o600, size
    try:
        block = bytearray(info.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict"))
    except (ValueError, UnicodeError):
        # Too long or not ASCII: Go takes the extended form too, in its own spelling.
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    # Device numbers are zero in Go's headers and empty in Python's.
    block[329:345] = b"0000000\0" * 2
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)
