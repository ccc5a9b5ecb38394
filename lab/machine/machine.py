"""A real machine: an image that was booted once goes on from there; its power is in our hands."""

from __future__ import annotations

from types import TracebackType

from lab.hosts.model import ADDRESS, USER
from lab.machine.image import Image, free_port, image
from lab.machine.qemu import Qemu, layer, programs


class Machine:
    """One machine with a disk of its own; gone with it."""

    def __init__(self, made: Image | None = None) -> None:
        self._programs = programs()
        self.image = made or image(self._programs)
        self._disk = layer(self._programs, self.image.disk)
        self._port = free_port()
        self.connection = {
            "host": "hgx-real",
            "address": ADDRESS,
            "port": self._port,
            "user": USER,
            "host_key": self.image.host_key,
        }
        """As an input of a provider."""
        self.qemu = self._start("-incoming", f"exec:cat {self.image.memory}")
        self.qemu.go_on()

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.qemu.kill()
        self._disk.close()

    def cut_power(self) -> None:
        """Off at once, and on again, through its boot loader: what was not written is lost."""
        self.qemu.kill()
        self.qemu = self._start()

    def _start(self, *extra: object) -> Qemu:
        return Qemu(self._programs, self._disk, "qcow2", self._port, *extra)
