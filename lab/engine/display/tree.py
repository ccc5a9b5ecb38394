"""The live view: resources under their parents, with what is being done to each."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lab.engine.display.base import Display, Options, configuration
from lab.engine.display.colours import Painter
from lab.engine.display.lines import closing, title
from lab.engine.display.rows import Row, Rows, short_type
from lab.engine.display.steps import KINDS
from lab.engine.events import Event, Summary

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_REFRESHES_PER_SECOND = 8


class Tree(Display):
    """Redraws the tree while the run goes on; the last one stays on the screen."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._rows = Rows(reads=options.show_reads, debug=options.debug)
        self._paint = Painter(on=options.colour)
        self._summary: Summary | None = None
        self._console = Console(no_color=not options.colour, highlight=False)
        self._frame = 0
        self._console.print(Text(title(options), style="bold"))
        for line in configuration(options):
            self._console.print(Text(line))
        self._live = Live(
            console=self._console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            get_renderable=self._draw,
            vertical_overflow="crop",
        )
        self._live.start()

    def show(self, event: Event) -> None:
        """See `Display`."""
        event = self.prepared(event)
        if isinstance(event, Summary):
            self._summary = event
        else:
            self._rows.take(event)

    def notice(self, text: str) -> None:
        """Above the tree, so that it stays whole."""
        self._live.console.print(Text(text, style="yellow"))

    def close(self, *, failed: bool) -> None:
        """Leave the whole tree on the screen and print the report below it."""
        del failed
        # While it was live, a tree higher than the screen was cut off.
        self._live.vertical_overflow = "visible"
        self._live.stop()
        lines = closing(self._rows, self.options, self._paint, self._summary)
        print("\n".join(["", *lines]).rstrip("\n"), flush=True)

    def _draw(self) -> Any:
        self._frame += 1
        table = Table(box=None, pad_edge=False, show_edge=False, header_style="dim")
        table.add_column("")
        table.add_column("Type", no_wrap=True)
        table.add_column("Name", no_wrap=True)
        table.add_column("Plan" if self.options.preview else "Status", no_wrap=True)
        table.add_column("Info", overflow="ellipsis")
        for row, lead in self._visible("", "", is_top=True):
            self._add(table, row, lead)
        return table

    def _visible(self, urn: str, lead: str, *, is_top: bool) -> list[tuple[Row, str]]:
        """The rows with something to tell, and those above them, with the lines that join them."""
        shown: list[tuple[Row, list[tuple[Row, str]]]] = []
        for row in self._rows.children(urn):
            below = self._visible(row.urn, lead, is_top=False)
            if row.changes or below or self.options.show_same or row.status == "running":
                shown.append((row, below))
        result = []
        for position, (row, below) in enumerate(shown):
            last = position == len(shown) - 1
            here, further = ("", "") if is_top else ("└─ ", "   ") if last else ("├─ ", "│  ")
            result.append((row, here))
            result += [(inner, further + inner_lead) for inner, inner_lead in below]
        return result

    def _add(self, table: Table, row: Row, lead: str) -> None:
        kind = KINDS[row.metadata.op if row.metadata else "same"]
        style = "bold red" if row.status == "failed" else kind.colour
        words = row.words(preview=self.options.preview)
        if row.status == "running" and not self.options.preview and words:
            words = f"{_FRAMES[self._frame % len(_FRAMES)]} {words} ({row.seconds:.0f}s)"
        elif row.end and not self.options.preview and words:
            words = f"{words} ({row.seconds:.1f}s)"
        table.add_row(
            Text(f" {kind.sign}", style=style),
            Text(f"{lead}{short_type(row.type)}"),
            Text(row.name),
            Text(words, style=style),
            Text(row.info(), style="red" if row.status == "failed" else ""),
        )
