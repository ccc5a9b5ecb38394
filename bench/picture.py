"""Draws a dashboard's panels from its file and what its queries answered, as SVG. Not Grafana."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

COLUMN, ROW, GAP = 56, 21, 6
"""Pixels of one cell of the dashboard's grid, and between two panels."""
COLORS = (
    "#7EB26D", "#EAB839", "#6ED0E0", "#EF843C", "#E24D42", "#1F78C1", "#BA43A9", "#705DA0", "#508642",
    "#CCA300", "#447EBC", "#C15C17", "#890F02", "#0A437C", "#6D1F62", "#584477",
)  # fmt: skip
STYLE = (
    ".panel{fill:#181b1f;stroke:#2c3235}.title{fill:#ccccdc;font-size:12px;font-weight:600}"
    ".row{fill:#ccccdc;font-size:13px;font-weight:600}.leg{fill:#ccccdc;font-size:10px}"
    ".axis{fill:#8e8e9c;font-size:10px;text-anchor:end}.grid{stroke:#2c3235}"
    ".stat{font-size:34px;font-weight:600;text-anchor:middle;fill:#73BF69}"
    ".none{fill:#6e6e7c;font-size:12px;text-anchor:middle}"
)

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One series of a panel."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Box:
    """Where a panel is, in pixels."""

    x: float
    y: float
    width: float
    height: float


def panels(dashboard: Path) -> list[dict[str, Any]]:
    """Of the file, rows included."""
    return list(json.loads(dashboard.read_text())["panels"])


def queries(dashboard: Path, *, rate_interval: str) -> list[str]:
    """Every query, with the dashboard's variables filled in."""
    return [
        target["expr"].replace("$__rate_interval", rate_interval).replace("$host", ".*")
        for panel in panels(dashboard)
        for target in panel.get("targets", ())
    ]


def lines(panel: Mapping[str, Any], answers: Iterator[Sequence[Mapping[str, Any]]]) -> list[Line]:
    """The series of a panel under the names of its legend; takes one answer for each query."""
    found = []
    for target in panel.get("targets", ()):
        for series in next(answers):
            labels = series["labels"]
            name = re.sub(
                r"{{(\w+)}}", lambda m, of=labels: str(of.get(m[1], "")), target["legendFormat"]
            )
            points = tuple((at, value) for at, value in series["points"])
            if points:
                found.append(Line(name, points))
    return sorted(found, key=lambda line: line.name)


def draw(
    dashboard: Path, told: Sequence[Sequence[Mapping[str, Any]]], span: Point, subtitle: str
) -> tuple[str, list[str]]:
    """The picture, and the titles of panels that have nothing to show.

    Args:
        dashboard: the file.
        told: for each of `queries`, the series that it gives.
        span: first and last moment, in seconds.
        subtitle: what run it is of.
    """
    title = json.loads(dashboard.read_text())["title"]
    answers, parts, empty, bottom = iter(told), list[str](), list[str](), 0.0
    for panel in panels(dashboard):
        at = panel["gridPos"]
        box = Box(at["x"] * COLUMN, at["y"] * ROW, at["w"] * COLUMN - GAP, at["h"] * ROW - GAP)
        bottom = max(bottom, box.y + box.height)
        if panel["type"] == "row":
            parts.append(f'<text x="4" y="{box.y + 15}" class="row">{panel["title"]}</text>')
            continue
        found = lines(panel, answers)
        parts.append(
            f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" class="panel"/>'
            f'<text x="{box.x + 8}" y="{box.y + 16}" class="title">{escape(panel["title"])}</text>'
        )
        if not found:
            empty.append(panel["title"])
            middle = f'x="{box.x + box.width / 2}" y="{box.y + box.height / 2}"'
            parts.append(f'<text {middle} class="none">nothing in this run</text>')
            continue
        parts += _KINDS[panel["type"]](panel, found, box, span)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -46 {24 * COLUMN + 14} {bottom + 56:g}" '
        f'font-family="sans-serif">\n<style>{STYLE}</style>\n'
        f'<rect x="-10" y="-46" width="100%" height="100%" fill="#111217"/>\n'
        f'<text x="0" y="-24" fill="#ccccdc" font-size="17">{escape(title)}</text>\n'
        f'<text x="0" y="-8" fill="#8e8e9c" font-size="11">{escape(subtitle)}</text>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n", empty


def _stat(_: Mapping[str, Any], found: list[Line], box: Box, __: Point) -> list[str]:
    value = _number(found[0].points[-1][1])
    middle = f'x="{box.x + box.width / 2}" y="{box.y + box.height - 17}"'
    return [f'<text {middle} class="stat">{value}</text>']


def _bars(_: Mapping[str, Any], found: list[Line], box: Box, __: Point) -> list[str]:
    most = max(line.points[-1][1] for line in found) or 1.0
    step = (box.height - 30) / len(found)
    parts = []
    for number, line in enumerate(found):
        value, y = line.points[-1][1], box.y + 26 + number * step
        long = (box.width - 180) * value / most
        color = COLORS[number % len(COLORS)]
        parts.append(
            f'<text x="{box.x + 8}" y="{y + 7:.1f}" class="leg">{escape(line.name)}</text>'
            f'<rect x="{box.x + 130}" y="{y:.1f}" width="{long:.1f}" height="{step * 0.72:.1f}" '
            f'fill="{color}"/>'
            f'<text x="{box.x + box.width - 34}" y="{y + 7:.1f}" class="leg">{_number(value)}</text>'
        )
    return parts


def _curves(panel: Mapping[str, Any], found: list[Line], box: Box, span: Point) -> list[str]:
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    stacked = custom.get("stacking", {}).get("mode") == "normal"
    shown = _stacked(found) if stacked else found
    most = max((v for line in shown for _, v in line.points), default=0.0) or 1.0
    legend = list(_legend(found, box))
    left, top = box.x + 48, box.y + 26
    width, height = box.width - 58, box.height - 34 - 13 * len({y for y, _ in legend})

    def place(point: Point) -> str:
        x = left + width * (point[0] - span[0]) / (span[1] - span[0])
        return f"{x:.1f},{top + height * (1 - point[1] / most):.1f}"

    parts = []
    for share in (0.0, 0.5, 1.0):
        y = top + height * (1 - share)
        value = _number(most * share, panel["fieldConfig"]["defaults"].get("unit", ""))
        parts.append(
            f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
            f'<text x="{left - 4}" y="{y + 4:.1f}" class="axis">{value}</text>'
        )
    for number, line in reversed(list(enumerate(shown))):
        color = COLORS[number % len(COLORS)]
        curve = " ".join(place(point) for point in line.points)
        if stacked:
            first, last = line.points[0][0], line.points[-1][0]
            area = f"{place((first, 0.0))} {curve} {place((last, 0.0))}"
            parts.append(f'<polygon points="{area}" fill="{color}" fill-opacity="0.75"/>')
        elif len(line.points) == 1:
            x, y = place(line.points[0]).split(",")
            parts.append(f'<circle cx="{x}" cy="{y}" r="2.5" fill="{color}"/>')
        else:
            parts.append(
                f'<polyline points="{curve}" fill="none" stroke="{color}" stroke-width="1.5"/>'
            )
    return parts + [text for _, text in legend]


def _stacked(found: list[Line]) -> list[Line]:
    """Each line upon those before it, at the moments of any of them."""
    moments = sorted({at for line in found for at, _ in line.points})
    below = dict.fromkeys(moments, 0.0)
    shown = []
    for line in found:
        mine = dict(line.points)
        below = {at: below[at] + mine.get(at, 0.0) for at in moments}
        shown.append(Line(line.name, tuple(below.items())))
    return shown


def _legend(found: list[Line], box: Box) -> Iterator[tuple[float, str]]:
    """Names in rows below the curves: where the row is, and one name of it."""
    widths = [22 + 5.6 * len(line.name) for line in found]
    rows: list[list[int]] = [[]]
    room = box.width - 58
    for number, width in enumerate(widths):
        if rows[-1] and sum(widths[n] for n in rows[-1]) + width > room:
            rows.append([])
        rows[-1].append(number)
    for index, row in enumerate(rows):
        x, y = box.x + 48, box.y + box.height - 6 - 13 * (len(rows) - 1 - index)
        for number in row:
            color = COLORS[number % len(COLORS)]
            name = escape(found[number].name)
            yield (
                y,
                f'<rect x="{x:.1f}" y="{y - 8:.1f}" width="8" height="8" fill="{color}"/>'
                f'<text x="{x + 12:.1f}" y="{y:.1f}" class="leg">{name}</text>',
            )
            x += widths[number]


def _number(value: float, unit: str = "") -> str:
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    shown = f"{value:.0f}" if value == int(value) or value >= 100 else f"{value:.2g}"
    return f"{shown} s" if unit == "s" else shown


_KINDS = {"stat": _stat, "bargauge": _bars, "timeseries": _curves}
