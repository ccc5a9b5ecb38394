"""One call of a stand-in, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.hosts.faults import Faults
from lab.hosts.machine import Machine


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
        """An answer on standard output."""
        return cls(exit_code, stdout=text if text.endswith("\n") or not text else text + "\n")

    @classmethod
    def error(cls, text: str, exit_code: int) -> Answer:
        """An answer on standard error."""
        return cls(exit_code, stderr=text if text.endswith("\n") else text + "\n")
