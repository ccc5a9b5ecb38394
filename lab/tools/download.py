"""Official releases over HTTPS, verified against a SHA-256 before anything of them is used."""

import hashlib
import http.client
import queue
import re
import shutil
import ssl
import tarfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.tools.catalogue import Platform, Release, Tool
from lab.tools.model import ToolError

# A machine without a way out must find that out quickly; one with a slow way out may take its time.
_CONNECT_SECONDS = 3.0
_ANSWER_SECONDS = 20.0
_READ_SECONDS = 30.0
_CHUNK_BYTES = 1 << 20

Open = Callable[[str], Any]


class NetworkError(ToolError):
    """The network does not lead to the releases; trying another one is pointless."""


class _Connection(http.client.HTTPSConnection):
    """Connects within the short limit, reads within the long one."""

    def connect(self) -> None:
        self.timeout = _CONNECT_SECONDS
        super().connect()
        self.sock.settimeout(_READ_SECONDS)


class _Handler(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, request, context=ssl.create_default_context())


def open_url(url: str) -> Any:
    """Open `url`; a proxy from the environment is used. Raises `NetworkError` or `ToolError`."""
    answer: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            # ProxyHandler and redirects come with build_opener.
            answer.put(urllib.request.build_opener(_Handler()).open(url, timeout=_READ_SECONDS))
        except (OSError, http.client.HTTPException) as error:
            answer.put(error)

    # In a thread, because no timeout of Python's covers the resolution of a name.
    threading.Thread(target=ask, daemon=True).start()
    try:
        result = answer.get(timeout=_ANSWER_SECONDS)
    except queue.Empty:
        raise NetworkError(f"{url} did not answer within {_ANSWER_SECONDS:.0f} s") from None
    if isinstance(result, urllib.error.HTTPError):
        raise ToolError(f"{url} answered {result.code} {result.reason}")
    if isinstance(result, Exception):
        cause = getattr(result, "reason", None) or result
        reason = getattr(cause, "strerror", None) or cause
        raise NetworkError(f"{urllib.parse.urlsplit(url).hostname} cannot be reached: {reason}")
    return result


def download(tool: Tool, platform: Platform, folder: Path, open_: Open = open_url) -> Path | None:
    """Fetch the official build of `tool` into `folder` and verify it.

    None when there is none for this platform. Raises `NetworkError` when the network leads
    nowhere, `ToolError` when the file is not what its checksum says or cannot be read.
    """
    release = tool.release
    if release is None or platform.os not in release.systems:
        return None
    names = {"version": tool.version, "os": platform.os, "arch": platform.arch}
    url = release.url.format(**names)
    expected = release.sha256.get(str(platform)) or _vendor_checksum(release, url, names, open_)
    if expected is None:
        return None
    fetched = folder / url.rsplit("/", 1)[1]
    found = save(url, fetched, open_)
    if found != expected:
        fetched.unlink()
        raise ToolError(
            f"{url} has SHA-256 {found}, expected {expected}: not used; "
            f"if a proxy changes downloads here, set GPU_CLUSTERS_OFFLINE=1"
        )
    return _extract(fetched, release.member.format(**names), folder) if release.member else fetched


def _vendor_checksum(release: Release, url: str, names: dict[str, str], open_: Open) -> str | None:
    if not release.checksums_url:
        return None
    checksums_url = release.checksums_url.format(**names)
    digest = find_checksum(read_text(checksums_url, open_), url.rsplit("/", 1)[1])
    if digest is None:
        raise ToolError(f"{checksums_url} holds no SHA-256 of {url}")
    return digest


def read_text(url: str, open_: Open = open_url) -> str:
    """A small text file, such as one of checksums. Raises `NetworkError` when it breaks off."""
    try:
        with open_(url) as answer:
            return str(answer.read(1 << 20).decode("ascii", "replace"))
    except (OSError, http.client.HTTPException) as error:
        raise NetworkError(f"{url} broke off: {error}") from error


def find_checksum(text: str, file_name: str) -> str | None:
    """The digest of `file_name` in a checksum file: `<digest>` alone or `<digest>  <name>`."""
    for line in text.splitlines():
        parts = line.split()
        if not parts or not re.fullmatch(r"[0-9a-fA-F]{64}", parts[0]):
            continue
        if len(parts) == 1 or parts[1].lstrip("*") == file_name:
            return parts[0].lower()
    return None


def save(url: str, target: Path, open_: Open = open_url) -> str:
    """Save what `url` answers; gives its SHA-256. Raises `NetworkError` when it breaks off."""
    digest = hashlib.sha256()
    try:
        with open_(url) as answer, target.open("wb") as out:
            while chunk := answer.read(_CHUNK_BYTES):
                digest.update(chunk)
                out.write(chunk)
    except (OSError, http.client.HTTPException) as error:
        raise NetworkError(f"{url} broke off: {error}") from error
    return digest.hexdigest()


def _extract(archive: Path, member: str, folder: Path) -> Path:
    target = folder / Path(member).name
    try:
        with tarfile.open(archive) as tar:
            source = tar.extractfile(member)
            if source is None:
                raise ToolError(f"{archive.name} holds no file {member}")
            with source, target.open("wb") as out:
                shutil.copyfileobj(source, out)
    except (tarfile.TarError, KeyError) as error:
        raise ToolError(f"{archive.name} holds no file {member}: {error}") from error
    archive.unlink()
    return target
