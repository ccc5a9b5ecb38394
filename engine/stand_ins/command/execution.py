"""One run of one command on its host: with what, and what its failure is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import asyncssh

from engine.stand_ins import calls
from engine.stand_ins.calls import ProviderError
from engine.stand_ins.command import ssh
from engine.stand_ins.command.connection import parse
from engine.stand_ins.command.inputs import secrets_of
from engine.stand_ins.command.output import Capture, Finished
from engine.stand_ins.redaction import redact
from engine.stand_ins.values import Properties, plain_properties

Tell = Callable[[str, bool], None]

_PREVIOUS: Final = {"stdout": "PULUMI_COMMAND_STDOUT", "stderr": "PULUMI_COMMAND_STDERR"}
_COMMAND_CHARACTERS: Final = 200


class Execution:
    """A command with its inputs; runs once."""

    def __init__(
        self,
        resource: calls.Resource,
        marked: Properties,
        command: str,
        previous: Mapping[str, str],
        tell: Tell,
    ) -> None:
        self._resource = resource
        self._marked = marked
        self._secrets = secrets_of(marked)
        self._fields = plain_properties(marked)
        self._command = command
        self._tell = tell
        self._where = f" on {parse(marked['connection']).address}"
        self._environment = {k: str(v) for k, v in (self._fields.get("environment") or {}).items()}
        self._previous: dict[str, str] = {}
        if self._fields.get("addPreviousOutputInEnv", True):
            self._previous = {_PREVIOUS[key]: text for key, text in previous.items() if text}
        self.capture = Capture(self._line)

    @property
    def title(self) -> str:
        """How messages call it: the command's beginning, without secrets, and the host."""
        text = redact(" ".join(self._command.split()), self._secrets)
        if len(text) > _COMMAND_CHARACTERS:
            text = f"{text[:_COMMAND_CHARACTERS]}…"
        return f"command {text!r}{self._where}"

    async def run(self) -> Finished:
        """Run it, over a connection of its own."""
        try:
            async with ssh.connected(parse(self._marked["connection"])) as connection:
                environment = await self._passed_on(connection)
                return await ssh.run(
                    connection,
                    self._command,
                    stdin=self._fields.get("stdin"),
                    environment=environment,
                    capture=self.capture,
                )
        except (asyncssh.Error, OSError) as error:
            said = getattr(error, "reason", "") or str(error)
            raise ProviderError(
                f"{self.title} was cut off: {said}; it may have run in part. Last words: "
                f"{Finished(0, self.capture.text('stdout'), self.capture.text('stderr')).last_words()!r}"
            ) from error

    async def _passed_on(self, connection: asyncssh.SSHClientConnection) -> dict[str, str]:
        """The variables, after a look whether the server passes them on."""
        wanted = {**self._environment, **self._previous}
        if not wanted:
            return {}
        accepted = await ssh.accepted_variables(connection, wanted)
        refused = [name for name in self._environment if name not in accepted]
        if refused:
            raise ProviderError(
                f"{self.title}: the SSH server does not pass on {', '.join(refused)} (AcceptEnv in its "
                "sshd_config). Allow them there, or give the values on stdin"
            )
        dropped = [name for name in self._previous if name not in accepted]
        if dropped:
            self._tell(
                f"the SSH server does not pass on {', '.join(dropped)} (AcceptEnv); set "
                "addPreviousOutputInEnv to false if the command does not need them",
                True,  # noqa: FBT003 - a warning
            )
        return {name: value for name, value in wanted.items() if name in accepted}

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

    def _line(self, stream: str, line: str) -> None:
        logging = self._fields.get("logging") or "stdoutAndStderr"
        if logging in (stream, "stdoutAndStderr"):
            self._tell(redact(line, self._secrets), False)  # noqa: FBT003 - not a warning
