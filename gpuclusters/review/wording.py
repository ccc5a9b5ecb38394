"""Values as a reviewer sees them: short, without secrets, what differs of two long ones."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from gpuclusters.review.secrets import masked_text
from gpuclusters.review.text import KNOWN_LATER, UNKNOWN, cut, visible

MOST_CHARACTERS = 160
_MOST_LINES = 40
_LONGEST_TEXT = 5000
"""Lines of a text that are compared."""
_BEFORE = 30


def shown(value: Any) -> str:
    """Any value in one line."""
    if isinstance(value, str):
        if value == UNKNOWN:
            return KNOWN_LATER
        if UNKNOWN in value:
            value = value.replace(UNKNOWN, KNOWN_LATER)
        return cut(visible(value), MOST_CHARACTERS) if value else '""'
    text = json.dumps(_tidy(value), ensure_ascii=False, sort_keys=True, default=str)
    return cut(visible(masked_text(text)), MOST_CHARACTERS).replace(UNKNOWN, KNOWN_LATER)


def _tidy(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _tidy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    return value


def pair(old: str, new: str) -> tuple[str, str]:
    """Two texts; long ones are cut to where they begin to differ."""
    before, after = visible(old), visible(new)
    same = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    if max(len(before), len(after)) > MOST_CHARACTERS and same > MOST_CHARACTERS // 2:
        start = same - _BEFORE
        before, after = f"…{before[start:]}", f"…{after[start:]}"
    return cut(before, MOST_CHARACTERS), cut(after, MOST_CHARACTERS)


def lines(old: str, new: str) -> tuple[str, ...]:
    """The lines of two texts that differ, each with its sign."""
    changes = list(
        difflib.unified_diff(
            old.splitlines()[:_LONGEST_TEXT], new.splitlines()[:_LONGEST_TEXT], lineterm="", n=1
        )
    )[2:]
    told = [
        "…" if line.startswith("@@") else cut(visible(line), MOST_CHARACTERS) for line in changes
    ]
    told = told[1:] if told[:1] == ["…"] else told
    if len(told) > _MOST_LINES:
        told = [*told[:_MOST_LINES], f"… and {len(told) - _MOST_LINES:,} lines more"]
    return tuple(told) or ("… (only line ends differ)",)
