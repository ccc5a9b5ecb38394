"""Plain lines, for files and logs: one when a step begins and one when it has ended."""

from engine.display import report
from engine.display.base import Display, Options, Painter
from engine.display.rows import Row, Rows, short_type
from engine.display.steps import KINDS, is_replacement_part
from engine.events import Diagnostic, Event, Summary

TITLES = {"update": "Updating", "refresh": "Refreshing", "destroy": "Destroying"}


def title(options: Options) -> str:
    if options.preview:
        return f"Previewing {options.operation} ({options.stack}):"
    return f"{TITLES[options.operation]} ({options.stack}):"


class Text(Display):
    """For people: a title, what happens, and a report at the end."""

    told = False
    """Whether information is printed when it comes, and not again in the report."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.rows = Rows(debug=options.debug)
        self.paint = Painter(on=options.colour)
        self._summary: Summary | None = None
        print(self.paint(title(options), "bold"), flush=True)

    def show(self, event: Event) -> None:
        event = self.prepared(event)
        if isinstance(event, Summary):
            self._summary = event
        else:
            self.tell(event, self.rows.take(event))

    def tell(self, event: Event, row: Row | None) -> None:
        """Print what an event has told of a row."""
        raise NotImplementedError

    def close(self, *, failed: bool) -> None:
        del failed
        lines = report.diagnostics(self.rows, self.paint, told=self.told)
        lines += report.outputs(self.rows, self.options, self.paint)
        if self._summary is not None:
            errored = sum(row.status == "failed" for row in self.rows)
            lines += report.summary(self._summary, errored, self.paint)
        print("\n".join(["", *lines]).rstrip("\n"), flush=True)


class Lines(Text):
    """Prints what happens as it happens."""

    told = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._said: dict[str, str] = {}

    def tell(self, event: Event, row: Row | None) -> None:
        if row is not None and not isinstance(event, Diagnostic):
            self.row_changed(row)
        elif isinstance(event, Diagnostic) and event.severity in report.PASSING:
            # What a program prints is wanted when it prints it.
            self._print_message(row, event)

    def row_changed(self, row: Row) -> None:
        """Print the line of a resource unless it has been printed just so."""
        if not (row.changes or self.options.show_same):
            return
        if row.metadata is not None and row.metadata.op == "refresh" and row.status == "running":
            return  # every resource is read; only what was found is worth a line
        parts = self.options.show_replacement_steps or not self.options.preview
        if row.part is not None and is_replacement_part(row.part) and not parts:
            return
        text = self._line(row)
        if self._said.get(row.urn) != text:
            self._said[row.urn] = text
            taken = f" ({row.seconds:.1f}s)" if row.end and not self.options.preview else ""
            print(text + taken, flush=True)

    def _line(self, row: Row) -> str:
        kind = KINDS[row.part.op if row.part else "same"]
        words = row.words(preview=self.options.preview, part=True)
        info = row.info()
        text = f" {kind.sign:<2} {short_type(row.type)} {row.name} {words}".rstrip()
        colour = "red" if row.status == "failed" else kind.colour
        return self.paint(text, colour) + (f"  {info}" if info else "")

    def _print_message(self, row: Row | None, event: Diagnostic) -> None:
        if event.severity == "debug" and not self.options.debug:
            return
        where = f"{row.name}: " if row else ""
        for line in event.message.rstrip().splitlines():
            print(f"    {where}{line}", flush=True)
