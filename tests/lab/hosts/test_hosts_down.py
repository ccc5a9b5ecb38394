"""Simulated hosts at unlucky moments: what ends has ended, nothing stays open, nobody gives up."""

from __future__ import annotations

import array
import asyncio
import os
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from lab.hosts import views
from lab.hosts.faults import Faults
from lab.hosts.folder import HostFolder
from lab.hosts.hardware.board import board
from lab.hosts.host import Host
from lab.hosts.identity import ensure_identity
from lab.hosts.machine import Machine
from lab.hosts.model import HostsError
from lab.hosts.request import receive
from lab.hosts.systemd import units
from lab.hosts.systemd.services import Services
from lab.hosts.views import Command, Running
from lab.hosts.writes import Watcher

PATIENCE_SECONDS = 120
KIND = {"platform": "supermicro-hgx-h100", "condition": "bare", "system": "ubuntu"}


def on_a_host(tmp_path: Path, act: Callable[[Host], Awaitable[None]]) -> None:
    """Do this with a host that no server serves."""
    try:
        user_namespace = views.check_possible()
    except HostsError as error:
        pytest.skip(str(error))

    async def main() -> None:
        folder = HostFolder(tmp_path / "hgx-01")
        ensure_identity(folder, KIND)
        launcher, watcher = views.Launcher(user_namespace=user_namespace), Watcher()
        host = Host(folder, launcher, watcher)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await act(host)
        finally:
            await host.close()
            launcher.close()
            watcher.close()

    asyncio.run(main())


async def begun(host: Host, command: str) -> Running:
    """A command of which nobody waits for the end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        return await host.start(command, (nothing, nothing, nothing))
    finally:
        os.close(nothing)


def test_commands_end_when_killed_and_with_their_host_even_those_that_begin_meanwhile(
    tmp_path: Path,
) -> None:
    async def act(host: Host) -> None:
        # Killed as soon as its number is known, which is when most of its view is still to be made.
        for _ in range(40):
            running = await begun(host, "sleep 4714")
            running.kill()
            await running.wait()
        several = [await begun(host, "while :; do echo x > /tmp/x; rm /tmp/x; done")]
        several += [await begun(host, "sleep 4714") for _ in range(9)]
        beginning = asyncio.create_task(begun(host, "sleep 4714"))
        await asyncio.sleep(0)
        host.machine.state["power"] = "off"
        await host.halt()
        assert [command.has_ended for command in several] == [True] * 10
        await (await beginning).wait()

    on_a_host(tmp_path, act)


class Program:
    """Runs until it is killed, unless it has ended as soon as it was started."""

    problem = None

    def __init__(self, *, ended: bool) -> None:
        self._ended = asyncio.Event()
        if ended:
            self.kill()

    async def wait(self) -> int:
        await self._ended.wait()
        return 1

    def kill(self) -> None:
        self._ended.set()


@pytest.mark.parametrize(
    ("kind", "end"), [("simple", "stop"), ("notify", "stop"), ("simple", "halt")]
)
def test_a_service_that_is_about_to_start_again_does_not_when_it_is_stopped_or_its_host_halts(
    tmp_path: Path, kind: str, end: str
) -> None:
    machine = Machine(HostFolder(tmp_path), board("plain-server"))
    file = machine.path("/etc/systemd/system/x.service")
    file.parent.mkdir(parents=True)
    file.write_text(f"[Service]\nType={kind}\nExecStart=/bin/false\nRestart=always\n")
    machine.path("/var/log").mkdir(parents=True)
    started: list[Program] = []

    async def start(command: Command, files: tuple[int, int, int]) -> Program:
        del command, files
        started.append(Program(ended=end == "halt"))
        return started[-1]

    async def story() -> None:
        services = Services(machine, start, Faults)  # type: ignore[arg-type]
        starting = asyncio.create_task(services.start("x.service"))
        while not started:
            await asyncio.sleep(0)
        if end == "halt":
            assert await starting
            for _ in range(10):
                await asyncio.sleep(0)  # its end is noticed, and its next start waits for a moment
            others = asyncio.all_tasks()
            await services.halt()
            watches = [task for task in others if "Services._watch" in repr(task.get_coro())]
            assert watches, "it was not about to be started again"
            await asyncio.wait(watches)
        else:
            await services.stop("x.service")
            assert not await starting
            # What would start it again, if anything does.
            if left := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(left)
            assert not units.is_active(machine, "x.service")
        assert len(started) == 1

    asyncio.run(story())


def _of(*numbers: int) -> bytes:
    return struct.pack("!III", *numbers)


@pytest.mark.parametrize(
    ("header", "body", "ends"),
    [
        (_of(5, 0, 0), b"abcde", True),
        (_of(5, 1, 0), b"abcde", True),
        (_of(5, 9, 0), b"a\0b\0c", True),
        (_of(3, 3, 0), b"a\0b", True),
        (_of(2**31, 2, 0), b"", True),
        (_of(400, 2, 0), b"a\0b", True),
        (b"short", b"", True),
        (_of(400, 2, 0), b"a\0b", False),  # nobody waits for the rest
    ],
)
@pytest.mark.parametrize("streams", [3, 2])
def test_streams_of_a_broken_request_are_closed(
    header: bytes, body: bytes, streams: int, *, ends: bool
) -> None:
    async def received() -> object:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            rights = array.array("i", [write] * streams)
            theirs.sendmsg([header], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            theirs.sendall(body)
            if ends:
                theirs.shutdown(socket.SHUT_WR)
            return await asyncio.wait_for(receive(ours), 60 if ends else 0.2)

    read, write = os.pipe()
    try:
        assert asyncio.run(received()) is None
    except TimeoutError:
        assert not ends
    os.close(write)
    # Who reads sees the end once nobody has the other side.
    reader = threading.Thread(target=os.read, args=(read, 1), daemon=True)
    reader.start()
    reader.join(5)
    assert not reader.is_alive()
    os.close(read)
