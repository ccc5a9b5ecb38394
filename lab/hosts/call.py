"""One call of a stand-in, and its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from lab.hosts.faults import Faults
from lab.hosts.machine import Machine

if TYPE_CHECKING:
    from lab.hosts.hardware.kernel import Kernel
    from lab.hosts.systemd.services import Services


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command that a stand-in ran on the host ended."""

    exit: int
    stdout: str
    stderr: str


class HostControl(Protocol):
    """What only the server of a host can do for a stand-in."""

    services: Services
    kernel: Kernel

    async def execute(self, argv: Sequence[str]) -> Finished:
        """Run a command on the host as root, and wait for its end."""

    def reboot(self) -> None:
        """Go down and come back; at once, when the stand-in has answered."""

    def watch(self) -> None:
        """There are new files in sysfs that take effect when written."""


@dataclass(frozen=True, slots=True)
class Call:
    """A command as it was typed. `arguments` are without the command's own name."""

    machine: Machine
    name: str
    arguments: tuple[str, ...]
    uid: int
    cwd: str
    faults: Faults
    environment: Mapping[str, str] = field(default_factory=dict)
    host: HostControl | None = None

    @property
    def control(self) -> HostControl:
        """The host's server; only a call by hand has none."""
        if self.host is None:
            raise RuntimeError(f"{self.name}: this call has no host that could act")
        return self.host

    @property
    def is_root(self) -> bool:
        """Whether the caller may do what only root may."""
        return self.uid == 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command prints and its exit code; `never` stands for a command that does not end."""

    exit: int = 0
    stdout: str = ""
    stderr: str = ""
    never: bool = False

    @classmethod
    def out(cls, text: str, exit_code: int = 0) -> Answer:
        return cls(exit_code, stdout=text if text.endswith("\n") or not text else text + "\n")

    @classmethod
    def error(cls, text: str, exit_code: int) -> Answer:
        return cls(exit_code, stderr=text if text.endswith("\n") else text + "\n")
