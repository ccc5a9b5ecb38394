"""Texts from a plan, made harmless: no secret, markup, mention or control, and no more than a forge takes."""

import difflib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

SECRET = "[secret]"  # noqa: S105

_NAME = re.compile(
    r"(?:^|[-_.a-z0-9])(?:password|passwd|passphrase|secret|token|private[-_]?key|api[-_]?key|access[-_]?key"
    r"|client[-_]?key(?:[-_]?data)?|kube[-_]?config|credentials?|authorization)s?$",
    re.IGNORECASE,
)
_NOT_A_SECRET = re.compile(
    r"^(?:image[-_]?pull[-_]?secrets?|automount.*|external[-_]?credentials?|host[-_]?key)$",
    re.IGNORECASE,
)
_FORMS = re.compile(
    "|".join(
        (
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            r"\bgh[pousr]_[A-Za-z0-9]{20,}",
            r"\bgithub_pat_[A-Za-z0-9_]{20,}",
            r"\bgl(?:pat|cbt|dt|rt|ptt|ft)-[A-Za-z0-9_.-]{16,}",
            r"\bpul-[a-f0-9]{32,}",
            r"\bAKIA[A-Z0-9]{16}\b",
            r"\bya29\.[A-Za-z0-9_-]{16,}",
            r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
            r"\bnvapi-[A-Za-z0-9_-]{20,}",
            r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
            r"(?<=://)[^/\s:@\"']+:[^/\s@\"']+(?=@)",
            r"(?<=[Bb]earer )[A-Za-z0-9._~+/-]{12,}=*",
            r"(?<=client-key-data: )\S+",
            r"(?<=token: )[A-Za-z0-9._-]{16,}",
            r"(?<=password: )\S+",
        )
    ),
    re.DOTALL,
)
_INNER = {"__provider", "__defaults", "__internal", "__fieldManager", "__inputs", "__meta"}
"""What providers note for themselves; nobody reviews it."""
_KUBERNETES_SECRET = "kubernetes:core/v1:Secret"  # noqa: S105
_WORTH_A_LOOK = re.compile(
    r"-----BEGIN|gh[pousr]_|github_pat|gl\w+-|pul-|AKIA|ya29|xox|nvapi|eyJ|://|earer |: "
)


def masked_text(text: str) -> str:
    """A text without what has the form of a secret."""
    return _FORMS.sub(SECRET, text) if _WORTH_A_LOOK.search(text) else text


def is_secret_name(name: str) -> bool:
    """Whether a property of this name holds a secret."""
    return bool(_NAME.search(name)) and not _NOT_A_SECRET.match(name)


def masked(properties: Mapping[str, Any], type_: str) -> dict[str, Any]:
    """Properties as they may be shown: secrets masked, what providers note for themselves left out."""
    shown = {name: _value(name, value) for name, value in properties.items() if name not in _INNER}
    if type_.startswith(_KUBERNETES_SECRET):
        for name in ("data", "stringData"):
            if isinstance(shown.get(name), Mapping):
                shown[name] = dict.fromkeys(shown[name], SECRET)
    return shown


def _value(name: str, value: Any) -> Any:
    if isinstance(value, str):
        # A mark of something not known yet is no secret, and neither is nothing.
        if value and is_secret_name(name) and value != UNKNOWN:
            return SECRET
        return masked_text(value)
    if isinstance(value, Mapping):
        return {key: _value(key, item) for key, item in value.items() if key not in _INNER}
    if isinstance(value, list):
        return [_value(name, item) for item in value]
    return value


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


class Weighted(IntEnum):
    """What is left out first where there is no room."""

    MUST = 0
    SHOULD = 1
    MAY = 2


@dataclass(frozen=True, slots=True)
class Block:
    """Markdown that is complete in itself: every fence and tag that it opens it closes."""

    text: str
    weight: Weighted


GITHUB = 65_536
"""Characters; more is answered with 422. Some surfaces take more, none takes less."""
GITLAB = 1_000_000
UNLIMITED = 10**9
_ROOM_FOR_NOTE = 400


def fit(blocks: Sequence[Block], most: int, artifact: str | None = None) -> str:
    """The blocks that fit, in their order, and a note about those that do not.

    Blocks that must be there come first into the room, then those that should, then the others, the earlier
    before the later.
    """
    text = "\n\n".join(block.text for block in blocks)
    if len(text) <= most:
        return text
    room = most - _ROOM_FOR_NOTE
    kept: set[int] = set()
    for index, block in sorted(enumerate(blocks), key=lambda one: one[1].weight):
        size = len(block.text) + 2
        if size <= room:
            kept.add(index)
            room -= size
    left_out = len(blocks) - len(kept)
    where = (
        f" The whole review: {artifact}."
        if artifact
        else " `gpu-clusters review --output DIR` writes all."
    )
    note = f"**Cut to what the forge takes: {left_out:,} parts are left out.**{where}"
    parts = [blocks[index].text for index in sorted(kept)]
    return "\n\n".join([*parts, note[: _ROOM_FOR_NOTE - 4]])


def marker(key: str, what: str) -> str:
    """What a comment is found again by. Invisible, and nothing of `key` can close it."""
    safe = "".join(c if c.isalnum() or c in "-_./" else "_" for c in key)[:80].replace("--", "__")
    return f"<!-- gpu-clusters {what} {safe} -->"
