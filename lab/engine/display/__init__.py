"""What a run looks like: a tree, lines, differences, or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lab.engine.display.base import ANNOUNCEMENT, Display, Options
from lab.engine.display.masking import Masker

__all__ = ["ANNOUNCEMENT", "Display", "Masker", "Options", "choose", "logs"]


def logs(options: Options, *, file: str | None, level: int | None) -> Iterator[Display]:
    """What is written besides the display: events to a file, a log of some level to stderr."""
    if file:
        from lab.engine.display.eventlines import EventLog

        yield EventLog(options, Path(file))
    if level is not None:
        from lab.engine.display.log import Log

        yield Log(options, level)


def choose(
    options: Options, *, json: bool, diff: bool, live: bool, streaming: bool = False
) -> Display:
    """The display for one run; `live`: there is a terminal on which a tree can be redrawn.

    `streaming`: a preview as JSON is lines of events, as a run is, and not one document.
    """
    if json:
        from lab.engine.display.digest import Digest
        from lab.engine.display.eventlines import EventLines

        whole = options.preview and not streaming
        return Digest(options) if whole else EventLines(options)
    if diff:
        from lab.engine.display.difference import Differences

        return Differences(options)
    if live:
        from lab.engine.display.tree import Tree

        return Tree(options)
    from lab.engine.display.lines import Lines

    return Lines(options)
