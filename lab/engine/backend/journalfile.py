"""A journal on disk: a file that only grows, one record per line.

A record is ``<length> <checksum> <JSON>`` with a line feed behind it, the first two as eight
hexadecimal digits. The checksum is the CRC-32 of the record's place and its JSON, so that records
can be neither lost nor swapped without being missed. What follows the last whole record is a
record that was being written when its writer was killed, or space that was reserved and not used.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.engine.atomicfile import explain, sync_folder
from lab.engine.usererror import UserError

_HEAD = 18  # two numbers of eight digits, each with a blank behind it
CHUNK = 1 << 20
PER_OPERATION = 64 << 10


@dataclass(frozen=True)
class Records:
    """What a journal holds: its records, and where each of them ends in the file."""

    records: list[Any]
    ends: list[int]


def frame(place: int, text: str) -> bytes:
    """A record as it lies in the file."""
    body = text.encode()
    return b"%08x %08x %b\n" % (len(body), _checksum(place, body), body)


def scan(content: bytes, path: Path) -> Records:
    """All whole records of a journal.

    Raises:
        UserError: the file is damaged before its end: whole records follow on one that is not.
    """
    records: list[Any] = []
    ends: list[int] = []
    at = 0
    while (body := _body(content, at, len(records))) is not None:
        records.append(json.loads(body))
        at += _HEAD + len(body) + 1
        ends.append(at)
    if _more_follows(content, at, len(records)):
        raise UserError(
            f"the journal {path} is damaged after byte {at}, with whole records behind that:"
            " nothing was changed. Restore the file, or go on with what was done before the damage:"
            f" truncate -s {at} {path}"
        )
    return Records(records, ends)


def _body(content: bytes, at: int, place: int) -> bytes | None:
    head = content[at : at + _HEAD]
    if len(head) < _HEAD or head[8:9] != b" " or head[17:] != b" ":
        return None
    try:
        length, checksum = int(head[:8], 16), int(head[9:17], 16)
    except ValueError:
        return None
    body = content[at + _HEAD : at + _HEAD + length + 1]
    if len(body) != length + 1 or body[-1:] != b"\n":
        return None
    return body[:-1] if _checksum(place, body[:-1]) == checksum else None


def _more_follows(content: bytes, at: int, place: int) -> bool:
    # Lines of a damaged record are no records; those of whole ones say which place they have.
    while (at := content.find(b"\n", at) + 1) > 0:
        place += 1
        if _body(content, at, place) is not None:
            return True
    return False


def _checksum(place: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(place.to_bytes(8, "big")))


class ReservationError(UserError):
    """All records are on the disk, but there is no room to begin anything more."""


class JournalFile:
    """A journal that is being written, by one process."""

    def __init__(self, path: Path, header: str) -> None:
        """Begin a journal; one that lies there has been folded and is replaced.

        Raises:
            UserError: it cannot be written.
        """
        self._path = path
        self._size = self._reserved = self._place = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise self._error(error) from error
        try:
            self.append([header], begins=True, running=0)
            # The name has to be there after a loss of power, before the state speaks of it.
            sync_folder(path.parent)
        except (OSError, UserError) as error:
            self.close()
            remove(path)
            raise error if isinstance(error, UserError) else self._error(error) from error

    def append(self, texts: Sequence[str], *, begins: bool, running: int) -> None:
        """Add records; returns when they are on the disk.

        If one of them `begins` something, room is reserved for the ends of all `running`
        operations, so that what is done can be written down even on a disk that is full by then.

        Raises:
            ReservationError: there is no such room; the records were added.
            UserError: they could not be added. The next call has to begin with the same ones.
        """
        data = b"".join(frame(self._place + n, text) for n, text in enumerate(texts))
        shortage = self._reserve(len(data), running) if begins else None
        try:
            self._write(data)
        except OSError as error:
            raise self._error(error) from error
        self._size += len(data)
        self._place += len(texts)
        if shortage is not None:
            raise ReservationError(str(self._error(shortage)))

    def _write(self, data: bytes) -> None:
        done = 0
        while done < len(data):
            done += os.pwrite(self._handle, data[done:], self._size + done)
        # What begins has to be known after a loss of power before a provider acts on it, and what
        # has ended before anybody is told so. (That a process is killed would need no sync.) The
        # file got its size when room was reserved, so it is the data alone that has to be synced.
        os.fdatasync(self._handle)

    def _reserve(self, wanted: int, running: int) -> OSError | None:
        needed = self._size + wanted + PER_OPERATION * (running + 1)
        if needed <= self._reserved:
            return None
        goal = -(-needed // CHUNK) * CHUNK
        try:
            os.posix_fallocate(self._handle, self._reserved, goal - self._reserved)
        except OSError as error:
            # Where the file system cannot reserve, the file grows as it is written.
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                return error
        self._reserved = goal
        return None

    def close(self) -> None:
        """Let go of the file; it stays."""
        os.close(self._handle)

    def _error(self, error: OSError) -> UserError:
        return UserError(f"could not write {self._path}: {explain(error)}")


def remove(path: Path) -> None:
    """Remove a journal that is not needed any more; what stays behind does no harm."""
    # The state no longer names it, and the next journal takes its place.
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
