"""Texts from a plan, made harmless: nothing in a name or a value becomes markup, a mention or a control."""

from __future__ import annotations

import re
import unicodedata

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
