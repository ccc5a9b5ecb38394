"""The inputs of `command:remote:Command`: their fields, their defaults, and what is refused."""

from collections.abc import Mapping
from typing import Any, Final

from engine.answers import Checked, Failure
from engine.stand_ins.command import connection
from engine.stand_ins.values import Properties, Value, plain_properties
from engine.values import Secret, Unknown

REMOTE: Final = "command:remote:Command"
FIELDS: Final = (
    "create",
    "update",
    "delete",
    "triggers",
    "stdin",
    "addPreviousOutputInEnv",
    "connection",
)
_REFUSED: Final = {
    "assetPaths": "read the files in the program instead",
    "archivePaths": "read the files in the program instead",
    "environment": "give the values on stdin",
    "logging": "leave it out, and all output is logged",
}
_PREVIOUS: Final = "addPreviousOutputInEnv"
_TEXTS: Final = ("create", "update", "delete", "stdin")


def check(token: str, news: Properties) -> Checked:
    """Inputs with the connection's defaults, or what is wrong with them."""
    failures = refusals(token, news)
    if failures or "connection" not in news:
        return Checked(news, failures)
    return Checked({**news, "connection": connection.completed(news["connection"])})


def refusals(token: str, news: Mapping[str, Value]) -> list[Failure]:
    """What is wrong with inputs; unknowns are taken to be right."""
    if token != REMOTE:
        return [Failure("", f"{token} is not part of the command stand-in; there is only {REMOTE}")]
    failures = []
    for key, value in plain_properties(news).items():
        if key in _REFUSED and value:
            failures.append(
                Failure(key, f"{key} is not supported by the command stand-in: {_REFUSED[key]}")
            )
        elif key not in (*FIELDS, *_REFUSED):
            failures.append(Failure(key, f"{key} is not an input of {token}"))
        elif value is not None and not isinstance(value, Unknown):
            failures += _wrong(key, value)
    if news.get(_PREVIOUS) is not False:
        failures.append(
            Failure(
                _PREVIOUS,
                "earlier output in variables is not supported by the command stand-in: set"
                f" {_PREVIOUS} to false",
            )
        )
    return [*failures, *connection.refusals(news.get("connection"))]


def _wrong(key: str, value: Any) -> list[Failure]:
    if key in _TEXTS and not isinstance(value, str):
        return [Failure(key, f"{key} must be a text")]
    return []


def comparable(fields: Mapping[str, Any]) -> Properties:
    """Inputs as a diff sees them: without secret marks."""
    return {
        key: value.value if isinstance(value, Secret) else value for key, value in fields.items()
    }


def secrets_of(marked: Properties) -> Properties:
    """Inputs with those parts marked that no message may show.

    A connection is secret as a whole in the state; of it, messages must name host, port and user.
    """
    whole = marked.get("connection")
    if not isinstance(whole, Secret) or not isinstance(whole.value, Mapping):
        return marked
    return {**marked, "connection": connection.with_secrets(whole.value)}
