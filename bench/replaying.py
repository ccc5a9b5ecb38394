"""Machines that answer as one simulated machine did before: SSH is real, and nothing runs behind it.

A hundred simulated machines share this computer's processor, and what their commands do takes most of it. A
machine here answers its first command with what the first command was answered then, and so on; so what
is left is what we do ourselves, SSH, and the time that every answer is held back.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import asyncssh

from tests.fixtures.hosts import SimulatedHost

ADDRESS = "127.0.0.1"
START_SECONDS = 60


@dataclass(frozen=True)
class Answer:
    """How a command ended."""

    status: int
    stdout: bytes
    stderr: bytes


@dataclass
class _Part:
    """What the machines play: answers in order, each so many seconds late."""

    answers: Sequence[Answer] = ()
    late: float = 0.0
    asked: dict[int, int] = field(default_factory=dict)
    """Commands so far, by machine."""


class _Login(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return False


@contextlib.contextmanager
def recording(host: SimulatedHost, answers: list[Answer]) -> Iterator[dict[str, Any]]:
    """A machine that hands every command on to `host` and writes its answers down; gives its connection."""

    async def hand_on(process: asyncssh.SSHServerProcess[bytes]) -> None:
        if _takes_the_machine(process):
            await _give_the_machine(process)
            return
        given = await process.stdin.read()
        async with host.connect() as real:
            done = await real.run(process.command, input=given, encoding=None)
        answer = Answer(done.exit_status or 0, bytes(done.stdout or b""), bytes(done.stderr or b""))
        answers.append(answer)
        _say(process, answer)

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    key = asyncssh.generate_private_key("ssh-ed25519")
    server = asyncio.run_coroutine_threadsafe(_listen(key, hand_on), loop).result(START_SECONDS)
    try:
        yield _connection(host.name, server.get_port(), _public(key))
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(START_SECONDS)


class Machines:
    """So many machines in a process of their own."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, count), daemon=True)
        self._process.start()
        self.connections: list[dict[str, Any]] = self._receive()

    def play(self, answers: Sequence[Answer], *, late: float) -> None:
        """From now on all of them answer this, from the beginning."""
        self._pipe.send((list(answers), late))
        self._receive()

    def close(self) -> None:
        """End them."""
        self._process.terminate()
        self._process.join()

    def _receive(self) -> Any:
        if not self._pipe.poll(START_SECONDS):
            raise TimeoutError("the machines do not answer")
        return self._pipe.recv()


def _serve(pipe: Connection, count: int) -> None:
    asyncio.run(_machines(pipe, count))


async def _machines(pipe: Connection, count: int) -> None:
    part = _Part()
    # One key for all: a hundred would only take time before anything is measured.
    key = asyncssh.generate_private_key("ssh-ed25519")
    connections = []
    for number in range(count):

        async def answer(process: asyncssh.SSHServerProcess[bytes], number: int = number) -> None:
            if _takes_the_machine(process):
                await asyncio.sleep(part.late)
                await _give_the_machine(process)
                return
            await process.stdin.read()
            place = part.asked.get(number, 0)
            part.asked[number] = place + 1
            await asyncio.sleep(part.late)
            _say(process, part.answers[place])

        server = await _listen(key, answer)
        connections.append(_connection(f"hgx-{number + 1:03}", server.get_port(), _public(key)))
    pipe.send(connections)
    loop = asyncio.get_running_loop()
    while True:
        answers, late = await loop.run_in_executor(None, pipe.recv)
        part.answers, part.late = answers, late
        part.asked.clear()
        pipe.send(None)


async def _listen(key: asyncssh.SSHKey, handler: Any) -> asyncssh.SSHAcceptor:
    return await asyncssh.listen(
        ADDRESS,
        0,
        server_host_keys=[key],
        server_factory=_Login,
        process_factory=handler,
        encoding=None,
    )


def _takes_the_machine(process: asyncssh.SSHServerProcess[bytes]) -> bool:
    """Whether the command holds the machine's lock until its input ends (`hold_machine.sh`)."""
    return "flock -w" in (process.command or "")


async def _give_the_machine(process: asyncssh.SSHServerProcess[bytes]) -> None:
    process.stdout.write(b"begun\nready /run/gpu-clusters\n")
    await process.stdin.read()
    process.exit(0)


def _say(process: asyncssh.SSHServerProcess[bytes], answer: Answer) -> None:
    process.stdout.write(answer.stdout)
    process.stderr.write(answer.stderr)
    process.exit(answer.status)


def _public(key: asyncssh.SSHKey) -> str:
    return " ".join(key.export_public_key().decode().split()[:2])


def _connection(name: str, port: int, host_key: str) -> dict[str, Any]:
    return {"host": name, "address": ADDRESS, "port": port, "user": "ops", "host_key": host_key}
