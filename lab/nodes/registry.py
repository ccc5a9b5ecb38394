"""A registry for nodes that reach none: it answers pulls out of the archives that the nodes were given.

The read half of the OCI distribution specification, enough for containerd as a client, on a socket in the
file system. A name that is in no archive means the stand-in image, if there is one among them. What is
asked for by its digest cannot be stood for, because a client checks the digest; and names of the lab's own
registry are known: both are not found, and the pull fails as with any registry.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socketserver
import tarfile
import threading
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, BinaryIO

from lab.images.names import REGISTRY, STAND_IN

REFUSED = "refused"
"""A file beside the socket: names of images, without tags, one a line."""
_BLOBS = "blobs/sha256/"
_NAME = "io.containerd.image.name"
_MANIFEST = re.compile(r"^/v2/(?P<name>.+)/manifests/(?P<reference>[^/]+)$")
_BLOB = re.compile(r"^/v2/.+/blobs/(?P<digest>sha256:[0-9a-f]{64})$")
_BLOB_TYPE = "application/octet-stream"
_TEXT_TYPE = "application/json"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class _Blob:
    archive: BinaryIO
    offset: int
    size: int


class Contents:
    """What some archives hold: manifests by name, everything by digest."""

    def __init__(self, archives: Sequence[Path]) -> None:
        self._blobs: dict[str, _Blob] = {}
        self._types: dict[str, str] = {}
        self._named: dict[str, str] = {}
        self._files: list[BinaryIO] = []
        for archive in archives:
            self.add(archive)

    def add(self, archive: Path) -> None:
        """Answer with what this archive holds too. It stays readable when its file is removed."""
        file = archive.open("rb")
        self._files.append(file)
        with tarfile.open(fileobj=file) as tar:
            for member in tar:
                if member.name.startswith(_BLOBS):
                    digest = f"sha256:{member.name.removeprefix(_BLOBS)}"
                    self._blobs[digest] = _Blob(file, member.offset_data, member.size)
            index = tar.extractfile("index.json")
            described = json.loads(index.read())["manifests"] if index else []
        for manifest in described:
            self._types[manifest["digest"]] = manifest["mediaType"]
            if name := manifest.get("annotations", {}).get(_NAME):
                self._named[name] = manifest["digest"]

    def manifest(self, name: str, reference: str) -> tuple[str, str] | None:
        """Digest and media type of what `reference`, a tag or a digest, means for an image."""
        digest: str | None = reference if reference in self._types else None
        if digest is None and ":" not in reference:
            digest = self._named.get(f"{name}:{reference}")
            if digest is None and not name.startswith(f"{REGISTRY}/"):
                digest = self._named.get(STAND_IN)
        return None if digest is None else (digest, self._types[digest])

    def size(self, digest: str) -> int | None:
        """How many bytes it has; None if no archive holds it."""
        blob = self._blobs.get(digest)
        return None if blob is None else blob.size

    def copy(self, digest: str, out: Any) -> None:
        blob = self._blobs[digest]
        done = 0
        while done < blob.size:
            # Each read says where: several pulls share the file.
            data = os.pread(
                blob.archive.fileno(), min(blob.size - done, _CHUNK), blob.offset + done
            )
            if not data:
                raise OSError(f"an archive ends within {digest}")
            out.write(data)
            done += len(data)

    def close(self) -> None:
        for file in self._files:
            file.close()


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
            if name not in self.server.refused():
                found = contents.manifest(name, named["reference"])
        elif (blob := _BLOB.match(asked.path)) and contents.size(blob["digest"]) is not None:
            found = (blob["digest"], _BLOB_TYPE)
        if found is None:
            self._refuse(asked.path, with_body=with_body)
            return
        digest, kind = found
        self._head(200, kind, contents.size(digest) or 0, digest)
        if with_body:
            contents.copy(digest, self.wfile)

    def _refuse(self, path: str, *, with_body: bool) -> None:
        message = f"{path}: no archive that the nodes were given has it"
        if "/manifests/sha256:" in path:
            message += "; what is named by its digest needs an archive or an alias (lab.nodes)"
        elif "/manifests/" in path:
            message += ", and there is no stand-in for it"
        errors = json.dumps({"errors": [{"code": "NOT_FOUND", "message": message}]}).encode()
        self._head(404, _TEXT_TYPE, len(errors))
        if with_body:
            self.wfile.write(errors)

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
        self._refused = Path(path).resolve().with_name(REFUSED)
        super().__init__(path, _Handler)

    def refused(self) -> list[str]:
        """Names that are not found as long as somebody wants it so; nodes keep what they have."""
        try:
            return self._refused.read_text().split()
        except FileNotFoundError:
            return []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A node that breaks a connection off is no fault of ours."""


@contextlib.contextmanager
def serving(path: str, archives: Sequence[Path]) -> Iterator[Contents]:
    """Answer on the socket `path` until the end of the block; more archives may be added meanwhile.

    Among the archives that of `lab.images.stand_in` is the answer for all names that are in none.
    """
    Path(path).unlink(missing_ok=True)
    contents = Contents(archives)
    server = _Server(path, contents)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield contents
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        contents.close()
