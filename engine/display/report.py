"""What stands below a run for people: messages, outputs, the count of changes."""

import json
from collections.abc import Mapping
from typing import Any

from engine.display.base import Options, Painter
from engine.display.rows import Rows, short_type
from engine.display.steps import KINDS
from engine.events import Diagnostic, Summary
from engine.values import (
    REFERENCE,
    SIGNATURE,
    UNKNOWN_SENTINELS,
    Value,
    blinded,
    reveal,
    values_to_state,
)

PASSING = ("debug", "info", "info#err")
"""Messages that are shown when they come, where that is possible."""

_LONGEST_VALUE = 200
_COLOURS = {"error": "red", "warning": "yellow"}


def diagnostics(rows: Rows, paint: Painter, *, told: bool) -> list[str]:
    """The messages, by the resource they are about; `told`: information was printed already."""
    lines: list[str] = []
    about = [(f"{paint(short_type(r.type), 'bold')} ({r.name})", r.diagnostics) for r in rows]
    for title, all_messages in [*about, (paint("the run", "bold"), rows.general)]:
        messages = [m for m in all_messages if not (told and m.severity in PASSING)]
        if messages:
            lines.append(f"  {title}:")
            for diagnostic in messages:
                lines += _message(diagnostic, paint)
            lines.append("")
    return [paint("Diagnostics:", "bold"), *lines] if lines else []


def _message(diagnostic: Diagnostic, paint: Painter) -> list[str]:
    text = (diagnostic.prefix + diagnostic.message).rstrip().splitlines()
    colour = _COLOURS.get(diagnostic.severity, "")
    return [f"    {paint(line, colour)}" for line in text]


def outputs(rows: Rows, options: Options, paint: Painter) -> list[str]:
    """The outputs of the stack: in a preview those that would change, else what there is now."""
    root = rows.outputs()
    if root is None or root.metadata is None:
        return []
    if root.status != "done":
        return []  # the program did not come so far; the state keeps what it had
    step = root.metadata
    old = step.old.outputs if step.old else {}
    new = step.new.outputs if step.new else {}
    changed = {n for n in old | new if n not in old or n not in new or not _same(old[n], new[n])}
    names = sorted(changed if options.preview else old | new)
    if not names:
        return []
    before, after = _plain(old, options), _plain(new, options)
    labels = {n: n if n.replace("-", "_").isidentifier() else json.dumps(n) for n in names}
    width = max(map(len, labels.values()))
    lines = [paint("Outputs:", "bold")]
    for name in names:
        if name not in old:
            sign, colour, value = "+", "green", shown(after[name])
        elif name not in new:
            sign, colour, value = "-", "red", shown(before[name])
        elif name in changed:
            sign, colour = "~", "yellow"
            value = f"{shown(before[name])} => {shown(after[name])}"
        else:
            sign, colour, value = " ", "", shown(after[name])
        lines.append(paint(f"  {sign} {labels[name].ljust(width)}: {value}", colour))
    return [*lines, ""]


def _same(old: Value, new: Value) -> bool:
    return reveal(old) == reveal(new)


def _plain(values: Mapping[str, Value], options: Options) -> dict[str, Any]:
    document: dict[str, Any] = options.mask.value(values_to_state(values, blinded))
    return document


def shown(value: Any) -> str:
    """A value on one line, cut where it is long."""
    if isinstance(value, str) and value in UNKNOWN_SENTINELS:
        return "[unknown]"
    if value == "[secret]":
        return "[secret]"
    if isinstance(value, dict) and value.get(SIGNATURE) == REFERENCE:
        return str(value.get("urn"))
    text = json.dumps(value, ensure_ascii=False)
    for sentinel in UNKNOWN_SENTINELS:
        text = text.replace(f'"{sentinel}"', "[unknown]")
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def summary(event: Summary, errored: int, paint: Painter) -> list[str]:
    """How many resources took which kind of step, and how long it took."""
    lines = [paint("Resources:", "bold")]
    kinds, total = 0, 0
    for op, kind in KINDS.items():
        count = event.changes.get(op, 0)
        if not count or not kind.plan:
            continue
        words = f"to {kind.plan}" if event.is_preview else kind.done
        lines.append(f"    {paint(f'{kind.sign} {count} {words}', kind.colour)}")
        kinds, total = kinds + 1, total + count
    pieces = [f"{total} changes"] if kinds > 1 else []
    if same := event.changes.get("same", 0):
        pieces.append(f"{same} unchanged")
    if pieces:
        lines.append(f"    {'. '.join(pieces)}")
    if errored:
        lines.append(f"    {paint(f'{errored} errored', 'red')}")
    if len(lines) == 1:
        lines.append("    none")
    if not event.is_preview:
        lines += ["", f"{paint('Duration:', 'bold')} {duration(event.duration_seconds)}"]
    return lines


def duration(seconds: float) -> str:
    """A duration as Pulumi writes it: ``75`` is ``1m15s``."""
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    text = f"{hours}h" if hours else ""
    text += f"{minutes}m" if hours or minutes else ""
    return f"{text}{left}s"
