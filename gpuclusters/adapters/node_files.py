"""Files of a host over SSH."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from gpuclusters.adapters.errors import InvalidAnswerError
from gpuclusters.adapters.scripts import run_script
from gpuclusters.adapters.ssh import SshHost
from gpuclusters.domain.host_file import sha256_of
from gpuclusters.domain.ports import LiveFile

_ABSENT = 3


class SshNodeFiles:
    """`NodeFiles` of one host; each call is one round trip."""

    def __init__(self, host: SshHost) -> None:
        self._host = host

    @property
    def place(self) -> str:
        """Name, address and port of the host."""
        return self._host.place

    def read(self, path: str) -> LiveFile | None:
        """The file, or None.

        Raises:
            AdapterError: not reached, not a regular file, or changed while it was read.
        """
        tried = f"read {path}"
        done = run_script(
            self._host, "read_file", [path], tried=tried, repeatable=True, accept=(0, _ABSENT)
        )
        if done.status == _ABSENT:
            return None
        head, _, content = done.stdout.partition(b"\n")
        fields = head.decode(errors="replace").split()
        if len(fields) != 3 or fields[2] != sha256_of(content):
            raise InvalidAnswerError(
                self.place, tried, "the file changed while it was read", "run again"
            )
        mode, owner, digest = fields
        return LiveFile(content, mode.zfill(4), owner, digest)

    def read_folders(self, folders: Sequence[str], suffixes: Sequence[str]) -> Mapping[str, bytes]:
        """Path to content of the files with these suffixes, top level only.

        Raises:
            AdapterError: not reached or not readable.
        """
        tried = f"read the files in {' and '.join(folders)}"
        done = run_script(
            self._host,
            "read_folders",
            [" ".join(suffixes), *folders],
            tried=tried,
            repeatable=True,
        )
        files: dict[str, bytes] = {}
        for block in done.stdout.decode(errors="replace").split("\n\n"):
            path, _, encoded = block.strip().partition("\n")
            if path:
                files[path] = base64.b64decode(encoded)
        return files

    def write(self, path: str, content: bytes, *, mode: str, owner: str) -> str:
        """Write atomically; answers the sha256 of what is there now.

        Raises:
            AdapterError: not reached, no space, not allowed; the old file is then untouched.
        """
        tried = f"write {path}"
        done = run_script(
            self._host, "write_file", [path, mode, owner], tried=tried, content=content
        )
        digest = done.stdout.decode(errors="replace").strip()
        if digest != sha256_of(content):
            raise InvalidAnswerError(
                self.place,
                tried,
                "the file has another content right after it was written",
                "find out who else writes it",
            )
        return digest

    def remove(self, path: str) -> None:
        """Remove; absent is fine.

        Raises:
            AdapterError: not reached or not allowed.
        """
        run_script(self._host, "remove_file", [path], tried=f"remove {path}")
