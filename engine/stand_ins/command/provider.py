"""The stand-in for pulumi-command: commands on hosts."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final

from engine import paths
from engine.stand_ins import calls
from engine.stand_ins.calls import ProviderError
from engine.stand_ins.command import inputs
from engine.stand_ins.command.background import Background
from engine.stand_ins.command.execution import Execution
from engine.stand_ins.comparison import compare, without_ignored
from engine.stand_ins.engine_log import EngineLog
from engine.stand_ins.values import UNKNOWN, Properties, Secret, contains_secret, plain_properties

_OUTPUTS: Final = ("stdout", "stderr")


class CommandProvider(calls.Provider):
    """Runs what it is told, once per create, change and delete; it reads nothing back."""

    name = "command"
    version = "1.2.1"
    stands_in_for = "pulumi-command 1.2.1"

    def __init__(self, engine: EngineLog) -> None:
        super().__init__(engine)
        self._background = Background()

    def check_config(self, inputs_: Properties) -> calls.Checked:
        unknown = [
            key for key in inputs_ if key not in ("version", "pluginDownloadURL", "__internal")
        ]
        failures = [
            calls.Failure(key, f"the command provider has no option {key}") for key in unknown
        ]
        return calls.Checked(inputs_, failures)

    def configure(self, options: Properties) -> None:
        """Nothing to take."""

    def check(self, call: calls.CheckCall) -> calls.Checked:
        """Refuse what cannot be followed; fill in the connection's defaults."""
        return inputs.check(call.resource.type, call.news)

    def diff(self, call: calls.DiffCall) -> calls.Diff:
        """Compare inputs; a changed trigger replaces, as the SDK says too."""
        olds = plain_properties(call.olds).items()
        old = {key: value for key, value in olds if key in inputs.FIELDS}
        changes = without_ignored(
            compare(inputs.comparable(old), inputs.comparable(plain_properties(call.news))),
            call.ignore_changes,
        )
        return calls.Diff(
            {
                paths.render(path): kind.with_replace() if path[0] == "triggers" else kind
                for path, kind in sorted(changes.items(), key=lambda change: str(change[0]))
            }
        )

    def create(self, call: calls.CreateCall) -> calls.Created:
        """Run `create`."""
        if call.preview:
            return calls.Created("", _previewed(call.inputs))
        identifier = f"{call.resource.name}{secrets.token_hex(4)}"
        command = plain_properties(call.inputs).get("create")
        outputs = self._run(call.resource, call.inputs, command, {}, call.timeout_seconds)
        return calls.Created(identifier, outputs)

    def update(self, call: calls.UpdateCall) -> Properties:
        """Run `update`, or `create` again where there is none."""
        if call.preview:
            return _previewed(call.news)
        new, old = plain_properties(call.news), plain_properties(call.olds)
        command = new.get("update") or new.get("create")
        return self._run(call.resource, call.news, command, old, call.timeout_seconds)

    def delete(self, call: calls.DeleteCall) -> None:
        """Run `delete` with the connection in the state; without one nothing is run, and nothing removed."""
        old = plain_properties(call.outputs)
        if old.get("delete"):
            self._run(call.resource, call.outputs, old["delete"], old, call.timeout_seconds)

    def read(self, call: calls.ReadCall) -> calls.Found | None:
        """What the state has: there is nothing to look at, so drift stays unseen, as with the real one."""
        if not call.outputs:
            raise ProviderError(
                f"{call.resource.type} cannot be imported: a command leaves nothing that could be read"
            )
        return calls.Found(call.id, call.outputs, call.inputs)

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
            execution = Execution(
                fields, command, lambda line: self.engine.status(line, resource.urn)
            )
            finished = self._background.run(execution.run(), seconds=seconds, what=execution.title)
            execution.require_success(finished)
            for stream in sorted(execution.capture.cut):
                self.engine.warning(
                    f"{stream} was longer than 1 MiB; the rest is not kept", resource.urn
                )
            said = {"stdout": finished.stdout, "stderr": finished.stderr}
        hidden = _says_secrets(marked)
        return {**fields, **{key: Secret(text) if hidden else text for key, text in said.items()}}


def _says_secrets(marked: Properties) -> bool:
    """Whether what the command prints may hold a secret it was given.

    The connection does not count: it is always secret, and the command never sees it.
    """
    unseen = ("connection", *_OUTPUTS)
    return any(contains_secret(value) for key, value in marked.items() if key not in unseen)


def _previewed(marked: Properties) -> Properties:
    return {**marked, **dict.fromkeys(_OUTPUTS, UNKNOWN)}
