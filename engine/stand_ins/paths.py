"""Property paths: `spec.containers[0].image`, `spec.hard["requests.nvidia.com/pgpu"]`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

Path = tuple[str | int, ...]

_PLAIN: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*\Z")
_STEP: Final = re.compile(r'\.?([^.\[\]"]+)|\["((?:[^"\\]|\\.)*)"\]|\[(\d+|\*)\]')


def join(path: Sequence[str | int]) -> str:
    """A path as the engine writes it."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN.match(step):
            text += f".{step}" if text else step
        else:
            escaped = step.replace("\\", "\\\\").replace('"', '\\"')
            text += f'["{escaped}"]'
    return text


def parse(text: str) -> Path:
    """The steps of a path; `[*]` stays a `*`.

    Raises:
        ValueError: it is not a path.
    """
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise ValueError(f"{text!r} is not a property path (at character {position})")
        plain, quoted, index = match.groups()
        if index is not None:
            steps.append(int(index) if index.isdigit() else index)
        else:
            steps.append(plain if plain is not None else re.sub(r"\\(.)", r"\1", quoted))
        position = match.end()
    return tuple(steps)


def covers(pattern: Sequence[str | int], path: Sequence[str | int]) -> bool:
    """Whether `path` is what `pattern` names, or inside it; `*` stands for any one step."""
    return len(path) >= len(pattern) and all(
        wanted in ("*", step) for wanted, step in zip(pattern, path, strict=False)
    )


def touches(pattern: Sequence[str | int], path: Sequence[str | int]) -> bool:
    """Whether one of the two is the other or inside it."""
    return all(wanted in ("*", step) for wanted, step in zip(pattern, path, strict=False))


def copied(source: Any, target: Any, path: Sequence[str | int]) -> Any:
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
