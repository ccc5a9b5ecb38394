"""Texts from a plan, made harmless: nothing in a name or a value becomes markup, a mention or a control."""

from __future__ import annotations

import difflib
import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from gpuclusters.review.secrets import masked_text

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""What Pulumi writes for a value that only `up` will tell."""
KNOWN_LATER = "(known after up)"

_BACKTICKS = re.compile(r"`+")
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_PLAIN = re.compile(r"[\x20-\x7e]*")
_MARKUP = re.compile(r"([\\`*_\[\]<>#|~$&@]|:(?=//|[a-z0-9_+-]+:))")


def visible(text: str, *, keep: str = "") -> str:
    """The text with every control, direction mark and unassigned character written out.

    A name can neither break a line, nor turn the reading direction, nor hide a character.
    `keep` are characters that stay, such as line breaks of a block.
    """
    if _PLAIN.fullmatch(text):
        return text
    return "".join(
        character
        if character in keep or unicodedata.category(character) not in _HIDDEN
        else _named(character)
        for character in text
    )


def _named(character: str) -> str:
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return known.get(character) or f"\\u{{{ord(character):x}}}"


def cut(text: str, most: int) -> str:
    """The text, or its beginning and how long it is."""
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}… ({len(text):,} characters)"


def code(text: str, most: int = 120) -> str:
    """Markdown that shows the text as code, in a table as well."""
    shown = cut(visible(text), most).replace("|", "¦")
    longest = max((len(run) for run in _BACKTICKS.findall(shown)), default=0)
    if not longest:
        return f"`{shown}`" if shown.strip() else "` `"
    fence = "`" * (longest + 1)
    return f"{fence} {shown} {fence}"


def prose(text: str, most: int = 600) -> str:
    """Markdown that shows the text as it is, in one line: no markup, no mention, no link."""
    shown = _MARKUP.sub(r"\\\1", cut(visible(text), most))
    # Forges look for mentions, issue numbers and addresses in the finished text, where a backslash is gone.
    for sign in ("@", "#"):
        shown = shown.replace(f"\\{sign}", f"{sign}\u200b")
    return shown.replace("www.", "www\u200b.")


def fence(lines: list[str]) -> str:
    """The fence of a code block that none of the lines can close."""
    longest = max((len(run) for line in lines for run in _BACKTICKS.findall(line)), default=0)
    return "`" * max(3, longest + 1)


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 GPU`, `8 GPUs`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(items: list[str], most: int = 6) -> str:
    """`a, b and c`, cut where there are many."""
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most:,} more"
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


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
    text = json.dumps(whole(value), ensure_ascii=False, sort_keys=True, default=str)
    return cut(visible(masked_text(text)), MOST_CHARACTERS).replace(UNKNOWN, KNOWN_LATER)


def whole(value: Any) -> Any:
    """Numbers as they were: a state has them as floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
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
