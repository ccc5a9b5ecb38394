"""The server process of a folder of hosts: one SSH port per host, one control socket."""

import asyncio
import contextlib
import logging
import os
import resource
import shutil
import socket
from pathlib import Path
from typing import Any
from uuid import uuid4

from lab.files import read_json, write_json
from lab.hosts import control, views
from lab.hosts.bmc import ensure_password
from lab.hosts.folder import HostFolder, HostsFolder
from lab.hosts.host import Host
from lab.hosts.identity import ensure_identity, is_kind
from lab.hosts.model import HostsError
from lab.hosts.network import Accepting
from lab.hosts.process import SERVER
from lab.hosts.served import Served
from lab.hosts.usernetes import usernetes_cluster
from lab.hosts.writes import Watcher

_DESCRIPTORS = 16384


class Server:
    """Serves the hosts that `hosts.json` names."""

    def __init__(self, folder: HostsFolder) -> None:
        self._folder = folder
        self._launcher = views.Launcher(user_namespace=views.check_possible())
        self._watcher = Watcher()
        self._served: dict[str, Served] = {}
        self._changing = asyncio.Lock()
        self._answers: set[asyncio.Task[None]] = set()
        self._listening = control.listen(folder.path / control.SOCKET, 0o600)

    async def run(self, stop: asyncio.Event) -> None:
        # From the start: who holds the real nodes tells of them, and waits for an answer, while hosts boot.
        answering = Accepting(self._listening, self._asked)
        try:
            async with self._changing:
                await self._reload()
            await stop.wait()
        finally:
            answering.stop()
            for answer in self._answers:
                answer.cancel()
            self._folder.ready.unlink(missing_ok=True)
            (self._folder.path / control.SOCKET).unlink(missing_ok=True)
            for name in list(self._served):
                await self._remove(name)
            self._launcher.close()
            self._watcher.close()

    def _asked(self, connection: socket.socket) -> None:
        # Each by itself: what one waits for may have to be told to another.
        task = asyncio.create_task(self._answer(connection))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with connection, contextlib.suppress(OSError):
            what = (await loop.sock_recv(connection, 256)).decode().strip()
            try:
                await self._act(what)
                answer = "ok"
            except HostsError as error:
                answer = str(error)
            await loop.sock_sendall(connection, f"{answer}\n".encode())

    async def _act(self, what: str) -> None:
        kind, _, name = what.partition(" ")
        if what == "machines":
            await self._settle()
            return
        try:
            async with self._changing:
                if what == "hosts":
                    await self._reload()
                elif kind == "faults" and name in self._served:
                    await self._served[name].apply_faults()
                elif kind == "reinstall" and name in self._served:
                    await self._reinstall(name)
                elif kind != "faults":
                    raise HostsError(f"unknown request {what!r}")
        finally:
            self._moved()

    async def _settle(self) -> None:
        """Have every host where its machine is now; a host that is being made looks by itself."""
        problems: list[str] = []
        for served in list(self._served.values()):
            try:
                await served.settle()
            except HostsError as error:
                problems.append(str(error))
        if problems:
            raise HostsError("; ".join(problems))

    async def _reload(self) -> None:
        """Serve what hosts.json says now: hosts that stay keep their connections."""
        wanted: dict[str, Any] = read_json(self._folder.specs)
        for name in set(self._served) - set(wanted["hosts"]):
            await self._remove(name)
            shutil.rmtree(self._folder.host(name).path)
        for name, kind in wanted["hosts"].items():
            served = self._served.get(name)
            if served is not None and not is_kind(served.host.identity, kind):
                nodes = await self._take_away(name)
                _clear(self._folder.host(name))
                self._served[name] = await self._add(name, kind, wanted["client-key"], nodes)
            elif served is None:
                self._served[name] = await self._add(name, kind, wanted["client-key"])
        self._write_ready()

    async def _reinstall(self, name: str) -> None:
        """Another operating system on the same machine: what its disk held is gone, its host key too."""
        wanted: dict[str, Any] = read_json(self._folder.specs)
        nodes = await self._take_away(name)
        entry = self._folder.host(name)
        entry.forget_disk()
        usernetes_cluster.Clusters(self._folder.path).forget(name)
        kept = read_json(entry.identity)
        write_json(entry.identity, {**kept, **wanted["hosts"][name], "boot_id": str(uuid4())})
        kind = wanted["hosts"][name]
        self._served[name] = await self._add(name, kind, wanted["client-key"], nodes)
        self._write_ready()

    async def _take_away(self, name: str) -> Path | None:
        """A host goes down for good, with its node; gives who has the node and starts it for the next."""
        served = self._served[name]
        nodes = served.nodes
        await served.suspend()
        await served.host.halt()
        await served.stop_machine()
        await served.forget_disk()
        await self._remove(name)
        return nodes

    async def _add(
        self, name: str, kind: dict[str, str], client_key: str, nodes: Path | None = None
    ) -> Served:
        entry = self._folder.host(name)
        try:
            ensure_identity(entry, kind)
            host = Host(entry, self._launcher, self._watcher)
        except OSError as error:
            raise HostsError(
                f"host {name}: its files cannot be made in {entry.path} ({error.strerror}); free "
                "space there, or choose another folder"
            ) from error
        served = Served(host, client_key, ensure_password(self._folder), self._moved)
        try:
            await served.open(nodes)
        except HostsError:
            await served.close()
            raise
        return served

    async def _remove(self, name: str) -> None:
        await self._served.pop(name).close()

    def _moved(self) -> None:
        """A host is elsewhere. While hosts are made nobody may read half of them."""
        if self._folder.ready.exists() and not self._changing.locked():
            self._write_ready()

    def _write_ready(self) -> None:
        hosts = {name: served.document() for name, served in sorted(self._served.items())}
        write_json(self._folder.ready, {"pid": os.getpid(), "hosts": hosts})


def _clear(host: HostFolder) -> None:
    """Remove all of a host, but not what is said of the real node under it."""
    for path in host.path.iterdir():
        if path == host.machine:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _raise_descriptors() -> None:
    """Three sockets for each host, and those of its connections: the usual limit is for a small program."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def serve(folder: HostsFolder) -> None:
    """Serve in this process until SIGTERM or SIGINT.

    Raises:
        HostsError: another server serves this folder, or this machine cannot run hosts.
    """
    # A client that went away while commands of its connection still print: its business alone.
    logging.getLogger("asyncio").addFilter(
        lambda record: record.getMessage() != "socket.send() raised exception."
    )
    _raise_descriptors()
    SERVER.run(folder, lambda stop: Server(folder).run(stop))
