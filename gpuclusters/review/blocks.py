"""Pieces of a comment that are kept or left out as a whole."""

from __future__ import annotations

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
