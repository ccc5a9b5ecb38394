"""Configuration values: YAML data in which ``{secure: …}`` stands for an encrypted text."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from engine.usererror import UserError

# What Go's JSON writer escapes beyond what JSON asks for.
_GO_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


@dataclass(frozen=True)
class Secure:
    ciphertext: str


Tree: TypeAlias = "bool | int | float | str | Secure | list[Tree] | dict[str, Tree] | None"


def from_yaml(data: object) -> Tree:
    """Data as YAML has it, with ``{secure: text}`` made `Secure`."""
    if data is None or isinstance(data, (bool, int, float, str)):
        return data
    if isinstance(data, list):
        return [from_yaml(item) for item in data]
    if isinstance(data, dict):
        if set(data) == {"secure"} and isinstance(data["secure"], str):
            return Secure(data["secure"])
        return {str(key): from_yaml(value) for key, value in data.items()}
    raise UserError(f"configuration value {data!r} is neither text, number, list nor mapping")


def to_yaml(tree: Tree) -> object:
    """The opposite of `from_yaml`."""
    if isinstance(tree, Secure):
        return {"secure": tree.ciphertext}
    if isinstance(tree, list):
        return [to_yaml(item) for item in tree]
    if isinstance(tree, dict):
        return {key: to_yaml(value) for key, value in tree.items()}
    return tree


def secrets(tree: Tree) -> Iterator[Secure]:
    if isinstance(tree, Secure):
        yield tree
    elif isinstance(tree, list):
        for item in tree:
            yield from secrets(item)
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from secrets(value)


def is_secret(tree: Tree) -> bool:
    """Whether there is an encrypted text anywhere in it."""
    return next(secrets(tree), None) is not None


def is_object(tree: Tree) -> bool:
    """Whether a program gets it as JSON and not as a plain text."""
    return isinstance(tree, (list, dict))


def plain(tree: Tree, decrypt: Callable[[str], str]) -> object:
    """The value with its secrets in the clear."""
    if isinstance(tree, Secure):
        return decrypt(tree.ciphertext)
    if isinstance(tree, list):
        return [plain(item, decrypt) for item in tree]
    if isinstance(tree, dict):
        return {key: plain(value, decrypt) for key, value in tree.items()}
    return tree


def text(tree: Tree, decrypt: Callable[[str], str]) -> str:
    """The text a program gets: a scalar as it is written, a list or mapping as JSON."""
    value = plain(tree, decrypt)
    if isinstance(value, str):
        return value
    return "" if value is None else go_json(value)


def go_json(value: object) -> str:
    """JSON as Go's encoder writes it: keys sorted, no spaces, ``<>&`` escaped.

    The text ends up in the inputs of default providers, so it has to be the same text.
    """
    dumped = json.dumps(
        _go_numbers(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return dumped.translate(_GO_ESCAPES)


def _go_numbers(value: object) -> object:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)
    if isinstance(value, list):
        return [_go_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _go_numbers(item) for key, item in value.items()}
    return value
