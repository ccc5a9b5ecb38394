"""Property paths: `root.array[0]["a key"].*`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from engine.values import Secret, Value

Key: TypeAlias = str | int
Path: TypeAlias = tuple[Key, ...]

_SIMPLE = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*\Z")
_TOKEN = re.compile(r'(?:\A|\.)([^.\[\]"]+)|\[(\d+)\]|\[\*\]|\.?\["((?:[^"\\]|\\.)*)"\]')


class PathError(ValueError):
    """A property path that cannot be read, or leads nowhere."""


def parse(text: str) -> Path:
    """The keys of a path; `*` stands for any key or index.

    Raises:
        PathError: the text is no path.
    """
    keys: list[Key] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise PathError(f"{text!r} is no property path (stuck at character {position + 1})")
        name, index, quoted = match.groups()
        if name is not None:
            keys.append(name)
        elif index is not None:
            keys.append(int(index))
        elif quoted is not None:
            keys.append(re.sub(r"\\(.)", r"\1", quoted))
        else:
            keys.append("*")
        position = match.end()
    if not keys:
        raise PathError("a property path must not be empty")
    return tuple(keys)


def render(path: Path) -> str:
    """The text of a path, as Pulumi prints it."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        elif _SIMPLE.match(key):
            text += f".{key}" if text else key
        else:
            escaped = key.replace("\\", "\\\\").replace('"', '\\"')
            text += f'["{escaped}"]'
    return text


def contains(pattern: Path, path: Path) -> bool:
    """Whether `path` is what `pattern` names, or something inside it."""
    if len(pattern) > len(path):
        return False
    return all(p in ("*", k) for p, k in zip(pattern, path, strict=False))


def reset(new: Value, old: Value, path: Sequence[Key], *, old_exists: bool = True) -> Value:
    """`new` with the value at `path` put back to what it is in `old` (or taken out).

    Raises:
        PathError: `old` has something there, but `new` lacks what it would have to be put into.
    """
    if isinstance(new, Secret):
        inner = reset(new.value, _open(old), path, old_exists=old_exists)
        return new if inner is new.value else Secret(inner)
    return _reset(new, _open(old) if old_exists else None, path)


def _reset(new: Value, old: Value, path: Sequence[Key]) -> Value:
    key, rest = path[0], path[1:]
    if key == "*":
        return _reset_all(new, old, rest)
    if isinstance(new, dict) and isinstance(key, str):
        return _reset_key(new, old if isinstance(old, dict) else {}, key, rest)
    if isinstance(new, list) and isinstance(key, int):
        return _reset_index(new, old if isinstance(old, list) else [], key, rest)
    if _has(old, key):
        raise PathError(render(tuple(path)))
    return new


def _reset_key(
    new: dict[str, Value], old: dict[str, Value], key: str, rest: Sequence[Key]
) -> Value:
    if not rest:
        if key in old:
            return {**new, key: old[key]}
        return {k: v for k, v in new.items() if k != key}
    if key not in new:
        if key in old and _leads_somewhere(old[key], rest):
            raise PathError(key)
        return new
    return {**new, key: reset(new[key], old.get(key), rest, old_exists=key in old)}


def _reset_index(new: list[Value], old: list[Value], index: int, rest: Sequence[Key]) -> Value:
    if index >= len(new):
        if index < len(old) and _leads_somewhere(old[index], rest):
            raise PathError(f"[{index}]")
        return new
    if rest:
        item = reset(
            new[index],
            old[index] if index < len(old) else None,
            rest,
            old_exists=index < len(old),
        )
    elif index < len(old):
        item = old[index]
    else:
        return new  # taking an element out would move the others
    return [*new[:index], item, *new[index + 1 :]]


def _reset_all(new: Value, old: Value, rest: Sequence[Key]) -> Value:
    if isinstance(new, dict):
        olds = old if isinstance(old, dict) else {}
        result: Value = new
        for key in sorted(new.keys() | (olds.keys() if not rest else set())):
            result = _reset(result, olds, (key, *rest))
        return result
    if isinstance(new, list):
        if not rest:
            return old if isinstance(old, list) else new
        result = new
        for index in range(len(new)):
            result = _reset(result, old, (index, *rest))
        return result
    return new


def _open(value: Value) -> Value:
    return _open(value.value) if isinstance(value, Secret) else value


def _has(value: Value, key: Key) -> bool:
    if isinstance(value, dict):
        return key in value
    return isinstance(value, list) and isinstance(key, int) and key < len(value)


def _leads_somewhere(value: Value, path: Sequence[Key]) -> bool:
    if not path:
        return True
    value, key = _open(value), path[0]
    if key == "*":
        return isinstance(value, dict | list) and bool(value)
    if isinstance(value, dict) and isinstance(key, str):
        return key in value and _leads_somewhere(value[key], path[1:])
    if isinstance(value, list) and isinstance(key, int):
        return key < len(value) and _leads_somewhere(value[key], path[1:])
    return False


def touches(pattern: Sequence[Key], path: Sequence[Key]) -> bool:
    """Whether one of the two is the other or inside it."""
    return all(wanted in ("*", step) for wanted, step in zip(pattern, path, strict=False))


def copied(source: Any, target: Any, path: Sequence[Key]) -> Any:
    """A copy of `target` in which `path` is as in `source`; what `source` lacks is taken out."""
    if not path:
        return source
    step, rest = path[0], path[1:]
    if step == "*":
        return target
    if isinstance(target, list) and isinstance(step, int):
        if not (isinstance(source, list) and step < len(source) and step < len(target)):
            return target
        return [
            copied(source[step], item, rest) if index == step else item
            for index, item in enumerate(target)
        ]
    if not isinstance(target, Mapping) or not isinstance(source, Mapping):
        return target
    if step not in source:
        return {key: value for key, value in target.items() if key != step}
    return {**target, step: copied(source[step], target.get(step, {}), rest)}
