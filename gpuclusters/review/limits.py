"""What a forge takes: a comment cut by whole blocks, never in the middle of one, and found again later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


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
    says: str = ""
    """One line instead of it, where there is room for no more; empty if it is only counted."""


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
    for weight in Weighted:
        for index, block in enumerate(blocks):
            if block.weight is not weight:
                continue
            size = len(block.text) + 2
            if size > room:
                continue
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
