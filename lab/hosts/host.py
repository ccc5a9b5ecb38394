"""One simulated host inside the server: runs its commands, answers for its stand-ins."""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from lab.hosts import control, faults, sudo, tree
from lab.hosts.board import board
from lab.hosts.folder import HostFolder, read_json, write_json
from lab.hosts.keys import ensure_key
from lab.hosts.machine import Machine
from lab.hosts.standins.call import Answer, Call
from lab.hosts.standins.registry import NAMES, STAND_INS, SUDO
from lab.hosts.views import Command, Launcher, Running, environment

_HEADER = struct.Struct("!III")
_PEER = struct.Struct("3i")
_NOT_AVAILABLE = 127
_MAX_REQUEST = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Request:
    name: str
    cwd: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    uid: int
    streams: tuple[int, ...]


class Host:
    """A machine: its files, its state, its stand-ins, the commands that run on it."""

    def __init__(self, folder: HostFolder, launcher: Launcher) -> None:
        identity = read_json(folder.identity)
        self.folder = folder
        self.platform = board(identity["platform"])
        self._launcher = launcher
        self._times: dict[str, int] = {}
        tree.build(folder, self.platform, identity, many_users=launcher.switches_user)
        self._mounts = tree.mounts(folder, NAMES)
        self.machine = Machine(folder, self.platform)
        self._listener = control.listen(folder.root / tree.SOCKET, 0o666)
        self._accepting = asyncio.create_task(self._accept())
        self._answering: set[asyncio.Task[None]] = set()

    @property
    def many_users(self) -> bool:
        """Whether root and the operator are two users on this host."""
        return self._launcher.switches_user

    def faults(self) -> faults.Faults:
        """The faults injected at this moment."""
        return faults.read(self.folder)

    async def start(self, command: str | None, streams: tuple[int, int, int]) -> Running:
        """Run a command line that came in over SSH, as the operator."""
        argv = ["/bin/sh", "-c", command] if command is not None else ["/bin/sh"]
        return await self._run(Command(argv), streams)

    def prepared_answer(self, command: str) -> Answer | None:
        """What a fault says this command answers instead of running."""
        for fault in self.faults().all(faults.CommandFails):
            if not fault.concerns(command):
                continue
            seen = self._times.get(fault.token, 0)
            if fault.times is not None and seen >= fault.times:
                continue
            self._times[fault.token] = seen + 1
            return Answer(fault.exit, fault.stdout, fault.stderr)
        return None

    async def _run(self, command: Command, streams: tuple[int, int, int]) -> Running:
        full = [fault.path for fault in self.faults().all(faults.DiskFull)]
        for path in full:
            _ensure_folder(self.machine.path(path))
        inside = ["/" + str(self.machine.path(path).relative_to(self.folder.root)) for path in full]
        return await self._launcher.start(
            self.folder.root,
            self.folder.name,
            self._mounts,
            Command(command.argv, command.uid, command.cwd, command.environment, inside),
            streams,
        )

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._listener)
            task = asyncio.create_task(self._answer(connection))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, connection: socket.socket) -> None:
        streams: tuple[int, ...] = ()
        try:
            request = await _receive(connection)
            if request is None:
                return
            streams = request.streams
            if request.name == SUDO:
                answer = await self._sudo(request, connection)
            elif request.name not in STAND_INS:
                # `reboot` and the like are other names of programs that a stand-in covers.
                text = f"{request.name}: not available on a simulated host"
                answer = Answer.error(text, _NOT_AVAILABLE)
            else:
                answer = await self._stand_in(request, connection)
            out, err = answer.stdout.encode(), answer.stderr.encode()
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(
                connection, _HEADER.pack(answer.exit, len(out), len(err)) + out + err
            )
        except OSError:
            # The command that asked is gone, killed with its view; there is nobody to answer.
            return
        finally:
            for descriptor in streams:
                os.close(descriptor)
            connection.close()

    async def _stand_in(self, request: _Request, connection: socket.socket) -> Answer:
        started = time.monotonic()
        uid = request.uid if self.many_users else 0
        call = Call(
            self.machine,
            request.name,
            request.arguments,
            uid,
            request.cwd,
            self.faults(),
            request.environment,
        )
        line = " ".join([request.name, *request.arguments])
        if any(fault.tool == request.name for fault in call.faults.all(faults.ToolMissing)):
            answer = Answer.error(f"sh: 1: {request.name}: not found", _NOT_AVAILABLE)
        else:
            answer = STAND_INS[request.name](call)
        self.machine.save()
        self.machine.note(
            "stand-in",
            command=line,
            uid=uid,
            exit=None if answer.never else answer.exit,
            seconds=round(time.monotonic() - started, 4),
        )
        if answer.never:
            await _hung_up(connection)
        return answer

    async def _sudo(self, request: _Request, connection: socket.socket) -> Answer:
        if self.faults().first(faults.SudoNeedsPassword):
            return Answer.error("sudo: a password is required", 1)
        parsed = sudo.parse(request.arguments, request.environment)
        if isinstance(parsed, Answer):
            return parsed
        values = environment(parsed.uid, parsed.environment)
        command = Command(parsed.argv, parsed.uid, request.cwd, values)
        stdin, stdout, stderr = request.streams
        running = await self._run(command, (stdin, stdout, stderr))
        ended = asyncio.create_task(running.wait())
        gone = asyncio.create_task(_hung_up(connection))
        try:
            await asyncio.wait({ended, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                running.kill()
            exit_code = await ended
        finally:
            running.kill()
            # Wait until it has let go of the connection: a reader of a descriptor that is closed and
            # used again would take the next user's events away.
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
        if running.problem:
            return Answer.error(f"sudo: {running.problem}", 1)
        return Answer(exit_code)

    async def close(self) -> None:
        """Stop answering. Commands end with the launcher."""
        tasks = [self._accepting, *self._answering]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()


def _ensure_folder(folder: Path) -> None:
    """A folder to mount a full disk on, owned like the one that it lies in."""
    if not folder.exists():
        _ensure_folder(folder.parent)
        owner = folder.parent.stat()
        folder.mkdir()
        os.chown(folder, owner.st_uid, owner.st_gid)


async def _hung_up(connection: socket.socket) -> None:
    """Wait until the other side is gone."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionError):
        while await loop.sock_recv(connection, 1024):
            pass


async def _receive(connection: socket.socket) -> _Request | None:
    """Read a request of `client.py`; None when it is not one."""
    connection.settimeout(0)
    await _readable(connection)
    size = array.array("i").itemsize
    header, ancillary, _, _ = connection.recvmsg(_HEADER.size, socket.CMSG_LEN(3 * size))
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content)
    length, fields, variables = _HEADER.unpack(header) if len(header) == _HEADER.size else (0, 0, 0)
    body = b""
    if fields and length <= _MAX_REQUEST and len(descriptors) == len(("in", "out", "error")):
        body = await _exactly(connection, length)
    if not body:
        for descriptor in descriptors:
            os.close(descriptor)
        return None
    parts = [part.decode("utf-8", "surrogateescape") for part in body.split(b"\0")]
    name, cwd, *arguments = parts[:fields]
    pairs = (part.partition("=") for part in parts[fields + 1 :][:variables])
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return _Request(
        name=name,
        cwd=cwd,
        arguments=tuple(arguments),
        environment={key: value for key, _, value in pairs},
        uid=_PEER.unpack(peer)[1],
        streams=tuple(descriptors),
    )


async def _exactly(connection: socket.socket, length: int) -> bytes:
    """That many bytes; none when the connection ends before."""
    loop = asyncio.get_running_loop()
    body = b""
    while len(body) < length:
        chunk = await loop.sock_recv(connection, length - len(body))
        if not chunk:
            return b""
        body += chunk
    return body


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(connection, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection)


def ensure_identity(folder: HostFolder, platform: str) -> dict[str, Any]:
    """The host's identity: made when it is first served, kept from then on."""
    folder.path.mkdir(parents=True, exist_ok=True)
    identity: dict[str, Any] | None = read_json(folder.identity)
    if identity is None or identity["platform"] != platform:
        board(platform)
        identity = {"platform": platform, "port": None, "boot_id": str(uuid4())}
    identity["host_key"] = ensure_key(folder.host_key, folder.name)
    write_json(folder.identity, identity)
    return identity
