"""One run of one command on its host: with what, and what its failure is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import asyncssh

from engine.stand_ins.calls import ProviderError
from engine.stand_ins.command import ssh
from engine.stand_ins.command.connection import parse
from engine.stand_ins.command.inputs import secrets_of
from engine.stand_ins.command.output import Capture, Finished
from engine.stand_ins.redaction import redact
from engine.stand_ins.values import Properties, plain_properties

Tell = Callable[[str], None]

_COMMAND_CHARACTERS: Final = 200


class Execution:
    """A command with its inputs; runs once."""

    def __init__(
        self,
        marked: Properties,
        command: str,
        tell: Tell,
    ) -> None:
        self._marked = marked
        self._secrets = secrets_of(marked)
        self._fields = plain_properties(marked)
        self._command = command
        self._tell = tell
        self._where = f" on {parse(marked['connection']).address}"
        self.capture = Capture(self._line)

    @property
    def title(self) -> str:
        """How messages call it: the command's beginning, without secrets, and the host."""
        text = redact(" ".join(self._command.split()), self._secrets)
        if len(text) > _COMMAND_CHARACTERS:
            text = f"{text[:_COMMAND_CHARACTERS]}…"
        return f"command {text!r}{self._where}"

    async def run(self) -> Finished:
        try:
            async with ssh.connected(parse(self._marked["connection"])) as connection:
                return await ssh.run(
                    connection,
                    self._command,
                    stdin=self._fields.get("stdin"),
                    capture=self.capture,
                )
        except (asyncssh.Error, OSError) as error:
            said = getattr(error, "reason", "") or str(error)
            raise ProviderError(
                f"{self.title} was cut off: {said}; it may have run in part. Last words: "
                f"{Finished(0, self.capture.text('stdout'), self.capture.text('stderr')).last_words()!r}"
            ) from error

    def require_success(self, finished: Finished) -> None:
        """Raise what a user needs to know of a command that failed.

        Raises:
            ProviderError: its exit code is not 0.
        """
        if finished.exit_code == 0:
            return
        ended = f"exit code {finished.exit_code}"
        if finished.exit_code < 0:
            ended = f"signal {-finished.exit_code}"
        words = finished.last_words()
        raise ProviderError(
            f"{self.title} failed with {ended}" + (f":\n{words}" if words else ", and said nothing")
        )

    def _line(self, _stream: str, line: str) -> None:
        self._tell(redact(line, self._secrets))
