"""Notices when a command wrote a file of a host's sysfs, so that the write can take effect.

A simulated /sys holds plain files. Linux tells (inotify, by folder) that one was written and closed; the
server then does what the kernel would. That is a moment later than on a real machine, where the write
itself does it: a script sees it at its next look, and every script has to look anyway, because the kernel
may refuse. Before a stand-in answers, all that was written until then has taken effect.
"""

import asyncio
import ctypes
import errno
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from lab.hosts.model import HostsError

_CLOSE_WRITE, _IGNORED, _ONLY_FOLDERS = 0x8, 0x8000, 0x01000000
_EVENT = struct.Struct("iIII")
_BUFFER = 64 * 1024
_PATIENCE_SECONDS, _POLL_SECONDS = 60.0, 0.2

Written = Callable[[Path], None]


def _instance(libc: ctypes.CDLL) -> int:
    """Of its own; waits a while when the user's other programs have all that there are: some may end."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        descriptor = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if descriptor >= 0:
            return descriptor
        code = ctypes.get_errno()
        if code != errno.EMFILE or time.monotonic() >= deadline:
            raise HostsError(
                f"inotify is not to be had ({os.strerror(code)}); raise "
                "fs.inotify.max_user_instances on this machine"
            )
        time.sleep(_POLL_SECONDS)


class Watcher:
    """One inotify instance for all hosts of a server: a machine has few of them to give."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = _instance(self._libc)
        self._watches: dict[int, tuple[Path, Written]] = {}
        self._reading = False

    def watch(self, folder: Path, written: Written) -> None:
        """Call `written` with the path of every file in this folder that a command has written."""
        if not self._reading:
            asyncio.get_running_loop().add_reader(self._descriptor, self.settle)
            self._reading = True
        number = self._libc.inotify_add_watch(
            self._descriptor, os.fsencode(folder), _CLOSE_WRITE | _ONLY_FOLDERS
        )
        if number < 0:
            raise HostsError(
                f"{folder} cannot be watched ({os.strerror(ctypes.get_errno())}); raise "
                "fs.inotify.max_user_watches on this machine"
            )
        self._watches[number] = (folder, written)

    def forget(self, below: Path) -> None:
        """Stop watching the folders below this one."""
        for number, (folder, _) in list(self._watches.items()):
            if folder.is_relative_to(below):
                self._libc.inotify_rm_watch(self._descriptor, number)
                self._watches.pop(number, None)

    def settle(self) -> None:
        """Let all that was written until now take effect."""
        while True:
            try:
                data = os.read(self._descriptor, _BUFFER)
            except BlockingIOError:
                return
            while data:
                number, mask, _, length = _EVENT.unpack_from(data)
                name = data[_EVENT.size : _EVENT.size + length].rstrip(b"\0")
                data = data[_EVENT.size + length :]
                if mask & _IGNORED:
                    self._watches.pop(number, None)
                elif number in self._watches:
                    folder, written = self._watches[number]
                    written(folder / os.fsdecode(name))

    def close(self) -> None:
        if self._reading:
            asyncio.get_event_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
