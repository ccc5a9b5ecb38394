"""The server process of a folder of hosts: one SSH port per host, one control socket."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import signal
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psutil

from lab.hosts import control, usernetes_cluster, views
from lab.hosts.bmc import Bmc
from lab.hosts.bmc_identity import ensure_password
from lab.hosts.folder import HostsFolder, read_json, write_json
from lab.hosts.host import Host, ensure_identity, is_kind
from lab.hosts.listener import Listener
from lab.hosts.model import HostsError
from lab.hosts.writes import Watcher

_WATCH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Served:
    host: Host
    listener: Listener
    bmc: Bmc


class Server:
    """Serves the hosts that `hosts.json` names."""

    def __init__(self, folder: HostsFolder) -> None:
        self._folder = folder
        self._launcher = views.Launcher(user_namespace=views.check_possible())
        self._watcher = Watcher()
        self._served: dict[str, _Served] = {}
        self._listening = control.listen(folder.path / control.SOCKET, 0o600)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop."""
        try:
            await self._reload()
            answering = asyncio.create_task(self._answer_control())
            watching = asyncio.create_task(self._watch_folder(stop))
            await stop.wait()
            answering.cancel()
            watching.cancel()
        finally:
            self._folder.ready.unlink(missing_ok=True)
            (self._folder.path / control.SOCKET).unlink(missing_ok=True)
            for name in list(self._served):
                await self._remove(name)
            self._launcher.close()
            self._watcher.close()

    async def _watch_folder(self, stop: asyncio.Event) -> None:
        """End when the folder was removed: nothing could find this process any more."""
        while self._folder.process.exists():
            await asyncio.sleep(_WATCH_SECONDS)
        stop.set()

    async def _answer_control(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._listening)
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
        if what == "hosts":
            await self._reload()
        elif kind == "faults" and name in self._served:
            await self._served[name].host.power.resume()
            await self._served[name].listener.apply_faults()
        elif kind == "reinstall" and name in self._served:
            await self._reinstall(name)
        elif kind != "faults":
            raise HostsError(f"unknown request {what!r}")

    async def _reload(self) -> None:
        """Serve what hosts.json says now: hosts that stay keep their connections."""
        wanted: dict[str, Any] = read_json(self._folder.specs)
        for name in set(self._served) - set(wanted["hosts"]):
            await self._remove(name)
            shutil.rmtree(self._folder.host(name).path)
        for name, kind in wanted["hosts"].items():
            served = self._served.get(name)
            if served is not None and not is_kind(served.host.identity, kind):
                await self._remove(name)
                shutil.rmtree(self._folder.host(name).path)
                served = None
            if served is None:
                self._served[name] = await self._add(name, kind, wanted["client-key"])
        self._write_ready()

    async def _reinstall(self, name: str) -> None:
        """Another operating system on the same machine: what its disk held is gone, its host key too."""
        wanted: dict[str, Any] = read_json(self._folder.specs)
        await self._remove(name)
        entry = self._folder.host(name)
        entry.forget_disk()
        usernetes_cluster.Clusters(self._folder.path).forget(name)
        kept = read_json(entry.identity)
        write_json(entry.identity, {**kept, **wanted["hosts"][name], "boot_id": str(uuid4())})
        self._served[name] = await self._add(name, wanted["hosts"][name], wanted["client-key"])
        self._write_ready()

    async def _add(self, name: str, kind: dict[str, str], client_key: str) -> _Served:
        entry = self._folder.host(name)
        try:
            identity = ensure_identity(entry, kind)
            host = Host(entry, self._launcher, self._watcher)
        except OSError as error:
            raise HostsError(
                f"host {name}: its files cannot be made in {entry.path} ({error.strerror}); free "
                "space there, or choose another folder"
            ) from error
        listener = Listener(host, client_key)
        host.power.connect(listener.suspend, listener.resume)
        bmc = Bmc(host, ensure_password(self._folder))
        served = _Served(host, listener, bmc)
        try:
            port = listener.open(identity["port"])
            bmc_port = bmc.open(identity.get("bmc-port"))
        except HostsError:
            await _close(served)
            raise
        write_json(entry.identity, {**identity, "port": port, "bmc-port": bmc_port})
        await host.power.resume()
        await host.services.resume()
        await listener.apply_faults()
        return served

    async def _remove(self, name: str) -> None:
        await _close(self._served.pop(name))

    def _write_ready(self) -> None:
        hosts = {
            name: {
                "port": served.listener.port,
                "host-key": served.listener.host_key,
                "bmc-port": served.bmc.port,
                "bmc-certificate": served.bmc.certificate,
                "condition": served.host.identity["condition"],
            }
            for name, served in sorted(self._served.items())
        }
        write_json(self._folder.ready, {"pid": os.getpid(), "hosts": hosts})


async def _close(served: _Served) -> None:
    await served.listener.close()
    await served.bmc.close()
    await served.host.close()


def serve(folder: HostsFolder) -> None:
    """Serve in this process until SIGTERM or SIGINT.

    Raises:
        HostsError: another server serves this folder, or this machine cannot run hosts.
    """
    lock = os.open(folder.serve_lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise HostsError(f"another server already serves the hosts in {folder.path}") from None

    # A client that went away while commands of its connection still print: its business alone.
    logging.getLogger("asyncio").addFilter(
        lambda record: record.getMessage() != "socket.send() raised exception."
    )
    process = psutil.Process()
    write_json(folder.process, {"pid": process.pid, "created": process.create_time()})

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await Server(folder).run(stop)

    asyncio.run(main())
