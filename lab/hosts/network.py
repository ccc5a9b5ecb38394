"""The network of another process: kept open, listened in, and known to end with that process."""

import asyncio
import ctypes
import os
import select
import socket
import threading
from collections.abc import Callable
from typing import TypeVar

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
_T = TypeVar("_T")


BACKLOG = 64


class Accepting:
    """Gives every connection to `welcome`, from within the running loop; begins at once."""

    def __init__(
        self, listening: socket.socket, welcome: Callable[[socket.socket], object]
    ) -> None:
        self._listening = listening
        self._welcome = welcome
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(listening, self._accept)

    def stop(self) -> None:
        """Accept none from now on; the socket stays open."""
        self._loop.remove_reader(self._listening)

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # whoever came has left
        connection.settimeout(0)
        self._welcome(connection)


def listening(address: str, port: int, *, kept: bool = True) -> socket.socket:
    """A socket that listens there, for an event loop; `OSError` when that cannot be.

    A port that is kept may have connections of before that linger. One that is chosen now is nobody's at
    all: a host that just refuses connections holds its own without listening there.
    """
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, kept)
    try:
        made.bind((address, port))
        # Its connections have it from the listening socket, and may linger when a server comes back.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    made.settimeout(0)
    return made


class Network:
    """A network namespace, found by a process that lives in it.

    Open descriptors and sockets keep a namespace, and with it the cables of a lab: whoever holds one asks
    to be told when the process ends, and closes it.
    """

    def __init__(self, pid: int) -> None:
        """Raises `ProcessLookupError` when there is no such process."""
        self._process = os.pidfd_open(pid)
        self._watched: asyncio.AbstractEventLoop | None = None
        try:
            self.descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        except OSError:
            os.close(self._process)
            raise ProcessLookupError(pid) from None

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended; another may have its number by now."""
        waiting = select.poll()
        waiting.register(self._process, select.POLLIN)
        return bool(waiting.poll(0))

    def listen(self, address: str, port: int) -> socket.socket:
        """A socket of this network that listens there; `OSError` when that cannot be."""
        return self._inside(lambda: listening(address, port))

    def when_ended(self, tell: Callable[[], None]) -> None:
        """Call this once in the running loop when the process has ended."""

        def ended() -> None:
            loop.remove_reader(self._process)
            self._watched = None
            tell()

        loop = self._watched = asyncio.get_running_loop()
        loop.add_reader(self._process, ended)

    def close(self) -> None:
        """Let go of it; again is fine."""
        if self._watched is not None:
            self._watched.remove_reader(self._process)
            self._watched = None
        for descriptor in (self._process, self.descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self._process = self.descriptor = -1

    def _inside(self, act: Callable[[], _T]) -> _T:
        """What `act` gives in this network: in a thread, which alone is moved and then ends."""
        outcome: list[_T] = []
        problems: list[OSError] = []

        def run() -> None:
            try:
                _enter(self.descriptor)
                outcome.append(act())
            except OSError as error:
                problems.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if problems:
            raise problems[0]
        return outcome[0]


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
