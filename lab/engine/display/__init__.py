"""What a run looks like: lines, differences, or JSON."""

from __future__ import annotations

from lab.engine.display.base import ANNOUNCEMENT, Display, Options
from lab.engine.display.masking import Masker

__all__ = ["ANNOUNCEMENT", "Display", "Masker", "Options", "choose"]


def choose(options: Options, *, json: bool, diff: bool, streaming: bool = False) -> Display:
    """The display for one run.

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
    from lab.engine.display.lines import Lines

    return Lines(options)
