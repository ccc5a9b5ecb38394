"""Configuration keys and the paths that lead into their values."""

from __future__ import annotations

from dataclasses import dataclass

from engine import paths
from engine.usererror import ExitCode, UserError

Path = tuple[str | int, ...]


@dataclass(frozen=True, order=True)
class ConfigKey:
    """``namespace:name``; the namespace is a project or a package."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}:{self.name}"

    def pretty(self, project: str) -> str:
        """As people write it: without the namespace if that is the project."""
        return self.name if self.namespace == project else str(self)


def parse_key(text: str, project: str) -> ConfigKey:
    """The key that `text` names; without a namespace it is one of the project."""
    namespace, colon, name = text.partition(":")
    if not colon:
        namespace, name = project, text
    if not namespace or not name or ":" in name:
        raise UserError(
            f"invalid configuration key: could not parse {text!r}"
            " (configuration keys should be of the form `<namespace>:<name>`)",
            ExitCode.CONFIGURATION,
        )
    return ConfigKey(namespace, name)


def parse_path_key(text: str, project: str) -> tuple[ConfigKey, Path]:
    """The key and the path inside its value, from ``[namespace:]name.inner[0]["other"]``."""
    head = text.split(".")[0].split("[")[0].split('"')[0]
    namespace, colon, _ = head.partition(":")
    rest = text[len(namespace) + 1 :] if colon else text
    path = parse_path(rest)
    if not path or not isinstance(path[0], str):
        raise UserError(
            f"invalid configuration key: {text!r} does not start with a name",
            ExitCode.CONFIGURATION,
        )
    return ConfigKey(namespace if colon else project, path[0]), path[1:]


def parse_path(text: str) -> Path:
    """The steps of a property path: names after dots or in ``["…"]``, numbers in ``[…]``."""
    try:
        steps = paths.parse(text)
    except paths.PathError as error:
        raise _malformed(str(error)) from None
    if "[*]" in text:
        raise _malformed(f"{text!r} names no single value")
    return steps


def _malformed(why: str) -> UserError:
    return UserError(
        f'invalid configuration key: {why}; write names.inner, names[0] or ["a.name"].inner',
        ExitCode.CONFIGURATION,
    )
