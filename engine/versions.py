"""Version ranges as `require_pulumi_version` takes them: `>=3.5.0 !3.7.7 || <3.4.0`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TypeAlias

Version: TypeAlias = tuple[int, int, int]

_CONDITION = re.compile(r"(>=|<=|==|!=|>|<|=|!)?\s*v?(\d+)(?:\.(\d+|x))?(?:\.(\d+|x))?\Z")
_COMPARE: dict[str, Callable[[Version, Version], bool]] = {
    "": operator.eq,
    "=": operator.eq,
    "==": operator.eq,
    "!": operator.ne,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class VersionError(ValueError):
    """A range that cannot be read."""


def satisfies(version: str, wanted: str) -> bool:
    """Whether a version is in a range: blanks join conditions by "and", `||` by "or".

    Raises:
        VersionError: the range cannot be read.
    """
    own = _numbers(version.removeprefix("v").split("-")[0].split("."))
    return any(
        all(_holds(own, condition, wanted) for condition in alternative.split())
        for alternative in wanted.split("||")
    )


def _holds(own: Version, condition: str, wanted: str) -> bool:
    match = _CONDITION.match(condition)
    if match is None:
        raise VersionError(f"{wanted!r} is no version range (at {condition!r})")
    sign, *parts = match.groups()
    return _COMPARE[sign or ""](own, _numbers([p for p in parts if p and p != "x"]))


def _numbers(parts: list[str]) -> Version:
    major, minor, patch = ([int(p) for p in parts] + [0, 0, 0])[:3]
    return major, minor, patch
