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

    @property
    def many_users(self) -> bool:
        """Whether root and the operator are two users there."""

    async def execute(self, argv: Sequence[str]) -> Finished:
        """Run a command on the host as root, and wait for its end."""

    def reboot(self) -> None:
        """Go down and come back; at once, when the stand-in has answered."""

    def watch(self) -> None:
        """There are new files in sysfs that take effect when written."""


@dataclass(frozen=True, slots=True)
class Given:
    """A command line that was read: its words, its options without and with a value."""

    words: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)


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
    given: Given = field(default_factory=Given)
    """How its program reads `arguments`."""

    @property
    def words(self) -> list[str]:
        return self.given.words

    @property
    def verb(self) -> str:
        """The first word; empty without any."""
        return self.words[0] if self.words else ""

    def has(self, *flags: str) -> bool:
        """Whether any of these options was given."""
        return any(flag in self.given.flags for flag in flags)

    def value(self, *names: str) -> str | None:
        """The last value that was given under any of these names."""
        return next((v[-1] for n, v in self.given.values.items() if n in names), None)

    def located(self, path: str) -> str:
        """A path of the command line from the root on."""
        return path if path.startswith("/") else f"{self.cwd}/{path}"

    @property
    def control(self) -> HostControl:
        """The host's server; only a call by hand has none."""
        if self.host is None:
            raise RuntimeError(f"{self.name}: this call has no host that could act")
        return self.host

    @property
    def has_many_users(self) -> bool:
        """Whether root is another user here than the operator."""
        return self.uid != 0 or (self.host is not None and self.host.many_users)

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


class RefusedError(Exception):
    """A program refuses, in its own words."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.answer = Answer.error(text, code)
