"""SFTP on a simulated host: its file system, with the operator's permissions.

The server process may be root on the machine, so what the operator may do is decided here: every
path is resolved inside the host, and the permission bits are read as the kernel would for the
operator's own session.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath

import asyncssh
from asyncssh.constants import FXF_APPEND, FXF_CREAT, FXF_WRITE

from lab.hosts import faults
from lab.hosts.host import Host
from lab.hosts.model import USER
from lab.hosts.tree import OPERATOR_ID

_READ, _WRITE, _SEARCH = 4, 2, 1


class HostSFTP(asyncssh.SFTPServer):
    def __init__(self, host: Host, channel: asyncssh.SSHServerChannel[bytes]) -> None:
        super().__init__(channel, chroot=os.fsencode(host.folder.root))
        self._host = host
        self._open_files: dict[int, str] = {}

    def map_path(self, path: bytes) -> bytes:
        """The machine's file for a path of the host, links followed inside the host."""
        return self._locate(path, follow=True)

    def _locate(self, path: bytes, *, follow: bool) -> bytes:
        inside = PurePosixPath(f"/home/{USER}", os.fsdecode(path))
        return os.fsencode(self._host.machine.path(str(inside), follow=follow))

    def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> object:
        real = Path(os.fsdecode(self.map_path(path)))
        writing = bool(pflags & (FXF_WRITE | FXF_APPEND))
        new = not real.exists()
        if new and pflags & FXF_CREAT:
            self._require(real.parent, _WRITE | _SEARCH)
        else:
            self._require(real, _WRITE if writing else _READ)
        file = super().open(path, pflags, attrs)
        self._host.machine.note("sftp", path=self._inside(real), write=writing)
        if new:
            self._own(real)
        self._open_files[id(file)] = self._inside(real)
        return file

    def write(self, file_obj: object, offset: int, data: bytes) -> int:
        """Write, unless the disk is full."""
        path = self._open_files.get(id(file_obj), "")
        for fault in self._host.faults().all(faults.DiskFull):
            if path == fault.path or path.startswith(f"{fault.path}/"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        written = super().write(file_obj, offset, data)
        assert isinstance(written, int)  # noqa: S101 (the base class may answer later; ours never)
        return written

    def close(self, file_obj: object) -> None:
        self._open_files.pop(id(file_obj), None)
        super().close(file_obj)

    def lstat(self, path: bytes) -> asyncssh.SFTPAttrs:
        real = self._locate(path, follow=False)
        found = Path(os.fsdecode(real))
        if found != self._host.folder.root:
            self._require(found.parent, _SEARCH)
        return asyncssh.SFTPAttrs.from_local(found.lstat())

    def readlink(self, path: bytes) -> bytes:
        return os.fsencode(Path(os.fsdecode(self._locate(path, follow=False))).readlink())

    def realpath(self, path: bytes) -> bytes:
        """The path without links, as the host sees it."""
        return os.fsencode(self._inside(Path(os.fsdecode(self.map_path(path)))))

    def symlink(self, oldpath: bytes, newpath: bytes) -> None:
        """Make a link that says exactly what the client asked for."""
        real = self._changeable(newpath)
        real.symlink_to(os.fsdecode(oldpath))
        self._own(real)

    def remove(self, path: bytes) -> None:
        self._changeable(path).unlink()

    def mkdir(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        real = self._changeable(path)
        real.mkdir(0o777 if attrs.permissions is None else attrs.permissions)
        self._own(real)

    def rmdir(self, path: bytes) -> None:
        """Remove an empty folder."""
        self._changeable(path).rmdir()

    def rename(self, oldpath: bytes, newpath: bytes) -> None:
        """Rename; fails when the new name exists, as version 3 of the protocol demands."""
        target = self._changeable(newpath)
        if target.exists():
            raise asyncssh.SFTPFailure("File already exists")
        self._changeable(oldpath).rename(target)

    def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        """Rename, in place of what has the new name."""
        self._changeable(oldpath).rename(self._changeable(newpath))

    def link(self, oldpath: bytes, newpath: bytes) -> None:
        self._changeable(newpath).hardlink_to(self._changeable(oldpath))

    def setstat(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        """Change attributes of a file that the operator owns."""
        self._require_owner(Path(os.fsdecode(self.map_path(path))))
        super().setstat(path, attrs)

    def lsetstat(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        """Change attributes of a link: refused, Linux keeps none that matter."""
        del path, attrs
        raise asyncssh.SFTPOpUnsupported("attributes of links cannot be changed")

    async def scandir(self, path: bytes) -> AsyncIterator[asyncssh.SFTPName]:
        """The files in a folder that the operator may read."""
        self._require(Path(os.fsdecode(self.map_path(path))), _READ)
        async for name in super().scandir(path):
            yield name

    def _inside(self, real: Path) -> str:
        return "/" + str(real.relative_to(self._host.folder.root))

    def _changeable(self, path: bytes) -> Path:
        real = Path(os.fsdecode(self._locate(path, follow=False)))
        self._require(real.parent, _WRITE | _SEARCH)
        return real

    def _own(self, real: Path) -> None:
        if self._host.many_users:
            os.lchown(real, OPERATOR_ID, OPERATOR_ID)

    def _require(self, real: Path, bits: int) -> None:
        """Refuse what the operator may not do with this file or one of the folders above it."""
        if not self._host.many_users:
            return  # then this process is the operator, and the kernel decides
        for folder in real.relative_to(self._host.folder.root).parents:
            _check(self._host.folder.root / folder, _SEARCH)
        _check(real, bits)

    def _require_owner(self, real: Path) -> None:
        if self._host.many_users and real.stat().st_uid != OPERATOR_ID:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def _check(real: Path, bits: int) -> None:
    found = real.stat()
    shift = 6 if found.st_uid == OPERATOR_ID else 3 if found.st_gid == OPERATOR_ID else 0
    if (stat.S_IMODE(found.st_mode) >> shift) & bits != bits:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
