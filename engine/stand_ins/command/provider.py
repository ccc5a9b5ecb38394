"""The stand-in for pulumi-command: commands on hosts."""

import secrets
from collections.abc import Mapping
from typing import Any, Final

import asyncssh

from engine.answers import Checked, Failure, ProviderError
from engine.stand_ins import calls
from engine.stand_ins.command import inputs, ssh
from engine.stand_ins.command.background import Background
from engine.stand_ins.command.connection import parse
from engine.stand_ins.comparison import compare, diff_of, without_ignored
from engine.stand_ins.engine_log import EngineLog
from engine.stand_ins.redaction import redact
from engine.stand_ins.values import Properties, plain_properties
from engine.values import UNKNOWN, Secret, contains_secret

_OUTPUTS: Final = ("stdout", "stderr")
_COMMAND_CHARACTERS: Final = 200


class CommandProvider(calls.Provider):
    """Runs what it is told, once per create, change and delete; it reads nothing back."""

    name = "command"
    version = "1.2.1"
    stands_in_for = "pulumi-command 1.2.1"

    def __init__(self, engine: EngineLog) -> None:
        super().__init__(engine)
        self._background = Background()

    def check_config(self, inputs_: Properties) -> Checked:
        unknown = [
            key for key in inputs_ if key not in ("version", "pluginDownloadURL", "__internal")
        ]
        failures = [Failure(key, f"the command provider has no option {key}") for key in unknown]
        return Checked(inputs_, failures)

    def configure(self, options: Properties) -> None:
        """Nothing to take."""

    def check(self, call: calls.Call) -> Checked:
        """Refuse what cannot be followed; fill in the connection's defaults."""
        return inputs.check(call.resource.type, call.news)

    def diff(self, call: calls.Call) -> calls.Diff:
        """Compare inputs; a changed trigger replaces, as the SDK says too."""
        olds = plain_properties(call.olds).items()
        old = {key: value for key, value in olds if key in inputs.FIELDS}
        changes = without_ignored(
            compare(inputs.comparable(old), inputs.comparable(plain_properties(call.news))),
            call.ignore_changes,
        )
        return diff_of(changes, ("triggers",))

    def create(self, call: calls.Call) -> calls.Found:
        """Run `create`."""
        if call.preview:
            return calls.Found("", _previewed(call.news))
        identifier = f"{call.resource.name}{secrets.token_hex(4)}"
        command = plain_properties(call.news).get("create")
        outputs = self._run(call.resource, call.news, command, {}, call.timeout_seconds)
        return calls.Found(identifier, outputs)

    def update(self, call: calls.Call) -> Properties:
        """Run `update`, or `create` again where there is none."""
        if call.preview:
            return _previewed(call.news)
        new, old = plain_properties(call.news), plain_properties(call.olds)
        command = new.get("update") or new.get("create")
        return self._run(call.resource, call.news, command, old, call.timeout_seconds)

    def delete(self, call: calls.Call) -> None:
        """Run `delete` with the connection in the state; without one nothing is run, and nothing removed."""
        old = plain_properties(call.olds)
        if old.get("delete"):
            self._run(call.resource, call.olds, old["delete"], old, call.timeout_seconds)

    def read(self, call: calls.Call) -> calls.Found | None:
        """What the state has: there is nothing to look at, so drift stays unseen, as with the real one."""
        if not call.olds:
            raise ProviderError(
                f"{call.resource.type} cannot be imported: a command leaves nothing that could be read"
            )
        return calls.Found(call.id, call.olds, call.old_inputs)

    def secrets_of(self, properties: Properties) -> Properties:
        """Of a connection, messages name host, port and user."""
        return inputs.secrets_of(properties)

    def cancel(self) -> None:
        self._background.cancel()

    def close(self) -> None:
        """Nothing stays that would have to be removed."""

    def _run(
        self,
        resource: calls.Resource,
        marked: Properties,
        command: str | None,
        previous: Mapping[str, Any],
        seconds: float,
    ) -> Properties:
        """The inputs with what the command said; without a command, with what was said before."""
        fields = {key: value for key, value in marked.items() if key not in _OUTPUTS}
        said = {key: str(previous.get(key) or "") for key in _OUTPUTS}
        if command:
            title = _title(command, fields)
            work = _execute(fields, command, title)
            output = self._background.run(work, seconds=seconds, what=title)
            for stream in sorted(output.cut):
                self.engine.warning(
                    f"{stream} was longer than 1 MiB; the rest is not kept", resource.urn
                )
            said = {key: output.text(key) for key in _OUTPUTS}
        hidden = _says_secrets(marked)
        return {**fields, **{key: Secret(text) if hidden else text for key, text in said.items()}}


def _title(command: str, marked: Properties) -> str:
    """How messages call a command: its beginning, without secrets, and the host."""
    text = redact(" ".join(command.split()), inputs.secrets_of(marked))
    if len(text) > _COMMAND_CHARACTERS:
        text = f"{text[:_COMMAND_CHARACTERS]}…"
    return f"command {text!r} on {parse(marked['connection']).address}"


async def _execute(marked: Properties, command: str, title: str) -> ssh.Output:
    """What a command said that has ended well.

    Raises:
        ProviderError: its host cannot be reached, it was cut off, or its exit code is not 0.
    """
    output = ssh.Output()
    try:
        async with ssh.connected(parse(marked["connection"])) as connection:
            stdin = plain_properties(marked).get("stdin")
            code = await ssh.run(connection, command, stdin, output)
    except (asyncssh.Error, OSError) as error:
        said = getattr(error, "reason", "") or str(error)
        raise ProviderError(
            f"{title} was cut off: {said}; it may have run in part. Last words: "
            f"{output.last_words!r}"
        ) from error
    if code != 0:
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        words = f":\n{output.last_words}" if output.last_words else ", and said nothing"
        raise ProviderError(f"{title} failed with {ended}{words}")
    return output


def _says_secrets(marked: Properties) -> bool:
    """Whether what the command prints may hold a secret it was given.

    The connection does not count: it is always secret, and the command never sees it.
    """
    unseen = ("connection", *_OUTPUTS)
    return any(contains_secret(value) for key, value in marked.items() if key not in unseen)


def _previewed(marked: Properties) -> Properties:
    return {**marked, **dict.fromkeys(_OUTPUTS, UNKNOWN)}
