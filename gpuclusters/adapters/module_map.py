"""Module numbers of a host's GPUs over SSH: asked once per host and run, whoever wants to know."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from gpuclusters.adapters.errors import CommandFailedError
from gpuclusters.adapters.scripts import run_script
from gpuclusters.adapters.ssh import SshHost
from gpuclusters.domain.module_map import TOOL, ModuleReading

_NOT_INSTALLED = 3
_LOCK = threading.Lock()
_READ: dict[tuple[str, str, int], dict[str, int]] = {}
"""What hosts answered in this process, which lives as long as one `up`."""
_ASKING: dict[tuple[str, str, int], threading.Lock] = {}
"""Held while a host is asked, so that who comes meanwhile waits for the same answer."""


class SshModuleMap:
    """`ModuleMap` of one host; one round trip for all addresses, none for what is known already."""

    def __init__(self, host: SshHost) -> None:
        self._host = host
        self._key = (host.connection.host, host.connection.address, host.connection.port)

    @property
    def place(self) -> str:
        """Name, address and port of the host."""
        return self._host.place

    def read(self, addresses: Sequence[str], *, keep: bool = True) -> ModuleReading:
        """In which module the GPU at each address sits.

        Args:
            addresses: of GPUs.
            keep: let the host remember the answers until its next boot; False where nothing may be
                written.

        Raises:
            AdapterError: not reached, or the tool is not installed.
        """
        with _LOCK:
            asking = _ASKING.setdefault(self._key, threading.Lock())
        with asking:
            known = _READ.get(self._key, {})
            if all(address in known for address in addresses):
                return ModuleReading({a: known[a] for a in addresses})
            reading = self._ask(addresses, keep=keep)
            _READ[self._key] = {**known, **reading.modules}
            return reading

    def _ask(self, addresses: Sequence[str], *, keep: bool) -> ModuleReading:
        tried = "read which GPU sits in which module"
        done = run_script(
            self._host,
            "fabric/gpu_modules",
            ["keep" if keep else "look", *addresses],
            tried=tried,
            after=("vfio/vfio_users",),
            repeatable=True,
            accept=(0, _NOT_INSTALLED),
        )
        if done.status == _NOT_INSTALLED:
            raise CommandFailedError(
                self.place,
                tried,
                f"{TOOL} is not installed, and without it or a driver nobody knows",
                "install it from github.com/NVIDIA/gpu-admin-tools as a command on the host's PATH",
            )
        return _parse(done.stdout.decode(errors="replace"))

    def forget(self) -> None:
        """Ask again next time: the host was booted."""
        with _LOCK:
            _READ.pop(self._key, None)


def _parse(text: str) -> ModuleReading:
    modules: dict[str, int] = {}
    held: dict[str, str] = {}
    silent: list[str] = []
    said: list[str] = []
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        address, _, value = rest.partition(" ")
        if kind == "known" and value.isdecimal():
            modules[address] = int(value)
        elif kind == "held":
            held[address] = value
        elif kind == "silent":
            silent.append(address)
        elif kind == "said":
            said.append(rest.strip())
    return ModuleReading(modules, held, tuple(silent), " | ".join(said)[:500])
