"""What a command says: kept up to a limit, told line by line, and cut for error messages."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

LIMIT_BYTES: Final = 1 << 20
_LAST_LINES: Final = 10
_LAST_CHARACTERS: Final = 2000


@dataclass(frozen=True)
class Finished:
    exit_code: int
    stdout: str
    stderr: str

    def last_words(self) -> str:
        """The end of what it said, for an error message; stderr if it said anything there."""
        text = self.stderr.strip() or self.stdout.strip()
        return "\n".join(text.splitlines()[-_LAST_LINES:])[-_LAST_CHARACTERS:]


def _decoders() -> dict[str, codecs.IncrementalDecoder]:
    make = codecs.getincrementaldecoder("utf-8")
    return {name: make("replace") for name in ("stdout", "stderr")}


@dataclass
class Capture:
    """Collects both streams; `tell` gets each whole line with its stream's name."""

    tell: Callable[[str, str], None]
    cut: set[str] = field(default_factory=set)
    _kept: dict[str, bytearray] = field(
        default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()}
    )
    _started: dict[str, str] = field(default_factory=lambda: {"stdout": "", "stderr": ""})
    _decoder: dict[str, codecs.IncrementalDecoder] = field(default_factory=_decoders)

    def add(self, stream: str, block: bytes) -> None:
        room = LIMIT_BYTES - len(self._kept[stream])
        self._kept[stream] += block[:room]
        if len(block) > room:
            self.cut.add(stream)
        *lines, rest = (self._started[stream] + self._decoder[stream].decode(block)).split("\n")
        self._started[stream] = rest[-LIMIT_BYTES:]
        for line in lines:
            self.tell(stream, line.rstrip("\r"))

    def text(self, stream: str) -> str:
        """All that was kept of a stream, without the last line end, as the real provider has it."""
        if self._started[stream]:
            self.tell(stream, self._started[stream])
            self._started[stream] = ""
        return self._kept[stream].decode(errors="replace").removesuffix("\n")
