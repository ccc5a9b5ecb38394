"""A registry for nodes that reach none: it answers pulls out of the archives that the nodes were given.

The read half of the OCI distribution specification, enough for containerd as a client, on a socket in the
file system. What is in no archive is not found, and the pull fails as with any registry.
"""

from __future__ import annotations

import contextlib
import json
import re
import socketserver
import tarfile
import threading
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

_BLOBS = "blobs/sha256/"
_NAME = "io.containerd.image.name"
_MANIFEST = re.compile(r"^/v2/(?P<name>.+)/manifests/(?P<reference>[^/]+)$")
_BLOB = re.compile(r"^/v2/.+/blobs/(?P<digest>sha256:[0-9a-f]{64})$")
_BLOB_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class _Blob:
    archive: Path
    offset: int
    size: int


class Contents:
    """What some archives hold: manifests by name, everything by digest."""

    def __init__(self, archives: Sequence[Path]) -> None:
        self._blobs: dict[str, _Blob] = {}
        self._types: dict[str, str] = {}
        self._named: dict[str, str] = {}
        for archive in archives:
            self._read(archive)

    def manifest(self, name: str, reference: str) -> tuple[str, str] | None:
        """Digest and media type of what `reference`, a tag or a digest, means for an image."""
        digest = reference if reference in self._types else self._named.get(f"{name}:{reference}")
        return None if digest is None else (digest, self._types[digest])

    def size(self, digest: str) -> int | None:
        """How many bytes it has; None if no archive holds it."""
        blob = self._blobs.get(digest)
        return None if blob is None else blob.size

    def copy(self, digest: str, out: Any) -> None:
        """Write it."""
        blob = self._blobs[digest]
        with blob.archive.open("rb") as source:
            source.seek(blob.offset)
            left = blob.size
            while left:
                data = source.read(min(left, 1 << 20))
                out.write(data)
                left -= len(data)

    def _read(self, archive: Path) -> None:
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.name.startswith(_BLOBS):
                    digest = f"sha256:{member.name.removeprefix(_BLOBS)}"
                    self._blobs[digest] = _Blob(archive, member.offset_data, member.size)
            index = tar.extractfile("index.json")
            described = json.loads(index.read())["manifests"] if index else []
        for manifest in described:
            self._types[manifest["digest"]] = manifest["mediaType"]
            if name := manifest.get("annotations", {}).get(_NAME):
                self._named[name] = manifest["digest"]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: containerd logs every pull."""

    def address_string(self) -> str:
        return "a node"

    def _answer(self, *, with_body: bool) -> None:
        contents = self.server.contents
        asked = urllib.parse.urlsplit(self.path)
        if asked.path == "/v2/":
            self._head(200, _BLOB_TYPE, 0)
            return
        found: tuple[str, str] | None = None
        if named := _MANIFEST.match(asked.path):
            # containerd says for which registry it asks.
            registry = urllib.parse.parse_qs(asked.query).get("ns", [""])[0]
            name = f"{registry}/{named['name']}" if registry else named["name"]
            found = contents.manifest(name, named["reference"])
        elif (blob := _BLOB.match(asked.path)) and contents.size(blob["digest"]) is not None:
            found = (blob["digest"], _BLOB_TYPE)
        if found is None:
            self._head(404, _BLOB_TYPE, 0)
            return
        digest, kind = found
        self._head(200, kind, contents.size(digest) or 0, digest)
        if with_body:
            contents.copy(digest, self.wfile)

    def _head(self, status: int, kind: str, size: int, digest: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, contents: Contents) -> None:
        self.contents = contents
        super().__init__(path, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A node that breaks a connection off is no fault of ours."""


@contextlib.contextmanager
def serving(path: str, archives: Sequence[Path]) -> Iterator[None]:
    """Answer on the socket `path` until the end of the block."""
    Path(path).unlink(missing_ok=True)
    server = _Server(path, Contents(archives))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
