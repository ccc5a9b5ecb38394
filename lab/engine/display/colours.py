"""Colours for lines that are just printed; the live tree has rich for that."""

from __future__ import annotations

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "magenta": "35",
    "cyan": "36",
    "bright_red": "91",
    "bright_green": "92",
}


class Painter:
    """Puts colour codes around a text, or does not."""

    def __init__(self, *, on: bool) -> None:
        self._on = on

    def __call__(self, text: str, colour: str) -> str:
        """The text in a colour; an empty name leaves it as it is."""
        if not self._on or not colour:
            return text
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"
