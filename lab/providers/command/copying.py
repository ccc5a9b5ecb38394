"""Files and directories to a host over SFTP, with the real provider's rules for where they go."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncssh

from lab.providers.calls import ProviderError
from lab.providers.values import ARCHIVE, Asset, from_wire


async def copy(sftp: asyncssh.SFTPClient, source: Asset, remote: str) -> None:
    """Copy what `source` holds to `remote`.

    | source | remote is a directory | remote is absent | remote is a file |
    | --- | --- | --- | --- |
    | text | error | remote | remote, overwritten |
    | file | remote/file | remote | remote, overwritten |
    | dir | remote/dir | remote/dir | error |
    | dir/ | its entries in remote | its entries in remote | error |
    | members | members in remote | members in remote | error |

    Raises:
        ProviderError: a local file cannot be read, or the remote path is of the wrong kind.
    """
    fields = source.fields
    if fields.get("uri"):
        raise ProviderError(
            f"the source {fields['uri']} is not on this machine; download it and copy the file"
        )
    if source.kind == ARCHIVE and fields.get("assets") is not None:
        await _copy_members(sftp, fields["assets"], remote)
    elif fields.get("text") is not None:
        await _write(sftp, str(fields["text"]).encode(), remote)
    else:
        await _copy_path(sftp, str(fields.get("path") or ""), remote)


async def _copy_path(sftp: asyncssh.SFTPClient, text: str, remote: str) -> None:
    path = Path(text)
    if not path.exists():
        raise ProviderError(f"the source {text or '(no path)'} does not exist on this machine")
    if path.is_dir():
        await _refuse_file(sftp, remote)
        target = remote if text.endswith("/") else posixpath.join(remote, path.name)
        await _copy_directory(sftp, path, target)
        return
    if await sftp.isdir(remote):
        remote = posixpath.join(remote, path.name)
    await _write(sftp, _read(path), remote)


async def _copy_directory(sftp: asyncssh.SFTPClient, path: Path, remote: str) -> None:
    await _refuse_file(sftp, remote)
    await sftp.makedirs(remote, exist_ok=True)
    for entry in sorted(path.iterdir()):
        target = posixpath.join(remote, entry.name)
        if entry.is_dir():
            await _copy_directory(sftp, entry, target)
        else:
            await _write(sftp, _read(entry), target)


async def _copy_members(sftp: asyncssh.SFTPClient, members: Mapping[str, Any], remote: str) -> None:
    await _refuse_file(sftp, remote)
    await sftp.makedirs(remote, exist_ok=True)
    for name, item in sorted(members.items()):
        member = from_wire(item)
        if not isinstance(member, Asset):
            raise ProviderError(f"the archive's member {name} is not a file")
        target = posixpath.join(remote, name)
        text, path = member.fields.get("text"), member.fields.get("path")
        if member.kind == ARCHIVE:
            await copy(sftp, member, target)
        elif text is not None:
            await _write(sftp, str(text).encode(), target)
        elif path:
            await _write(sftp, _read(Path(path)), target)
        else:
            raise ProviderError(f"the archive's member {name} is not on this machine")


async def _refuse_file(sftp: asyncssh.SFTPClient, remote: str) -> None:
    if await sftp.isfile(remote):
        raise ProviderError(f"remote path {remote} is a file; a directory cannot be copied over it")


async def _write(sftp: asyncssh.SFTPClient, content: bytes, remote: str) -> None:
    if await sftp.isdir(remote):
        raise ProviderError(f"remote path {remote} is a directory; name the file in it")
    parent = posixpath.dirname(remote)
    if parent:
        await sftp.makedirs(parent, exist_ok=True)
    async with sftp.open(remote, "wb") as file:
        await file.write(content)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ProviderError(f"the source {path} cannot be read: {error.strerror}") from error
