"""Training time against number of nodes as SVG, in the manner of the picture of a cluster."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuclusters.drawing.svg import label, page
from gpuclusters.proof.training_times import Run, Times, words

_WIDTH, _HEIGHT = 980, 560
_LEFT, _RIGHT, _TOP, _BOTTOM = 92, 28, 138, 92
_TICKS = 5
_TITLE = "Training time by number of nodes"
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600)
"""Seconds between two lines of the grid."""


@dataclass(frozen=True, slots=True)
class _Series:
    name: str
    tone: str
    points: Sequence[tuple[int, float]]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class _Scale:
    """From nodes and seconds to places. Nodes are on a scale of doublings."""

    least: int
    most: int
    seconds: float

    def x(self, nodes: int) -> float:
        span = math.log2(self.most / self.least) or 1.0
        return _LEFT + math.log2(nodes / self.least) / span * (_WIDTH - _LEFT - _RIGHT - 40) + 20

    def y(self, seconds: float) -> float:
        return _HEIGHT - _BOTTOM - seconds / self.seconds * (_HEIGHT - _TOP - _BOTTOM)


def times_svg(runs: Sequence[Run], known: Times) -> str:
    """The plot. The same runs give the same bytes."""
    series = [*_of_runs(runs), *_of_table(known)]
    nodes = sorted({n for one in series for n, _ in one.points})
    most = max(seconds for one in series for _, seconds in one.points)
    step = next((s for s in _STEPS if most / s <= _TICKS), _STEPS[-1])
    scale = _Scale(nodes[0], nodes[-1], math.ceil(most / step) * step)
    parts = [
        label("title", 24, 46, _TITLE),
        *_legend(series),
        *_grid(scale, nodes, step),
    ]
    for one in series:
        parts += _line(one, scale)
    note = (
        f"Dashed: measured by others ({known.as_of:%B %Y}), one V100 per node, {known.epochs} epochs, warm. "
        "Dots: evidence of your own runs."
    )
    parts.append(label("small", 24, _HEIGHT - 18, note))
    return page(_WIDTH, _HEIGHT, _TITLE, parts, _LINES)


_COLOURS = ("#2f6feb", "#b3481e", "#1a7f4b", "#8250df")
_LINES = ".gc-series{fill:none;stroke-width:2.2}" + "".join(
    (
        ".gc-dashed{stroke-dasharray:6 5}",
        *(f".gc-s{number}{{stroke:{colour}}}" for number, colour in enumerate(_COLOURS)),
    )
)


def _of_runs(runs: Sequence[Run]) -> Iterator[_Series]:
    for simulated, name, tone in ((False, "your runs", "1"), (True, "simulated, no GPU", "3")):
        points = [(run.nodes, run.seconds) for run in runs if run.simulated is simulated]
        if points:
            yield _Series(name, tone, points)


def _of_table(known: Times) -> Iterator[_Series]:
    rows = known.measured
    usernetes, gke = [(r.nodes, r.usernetes) for r in rows], [(r.nodes, r.gke) for r in rows]
    yield _Series("Usernetes, measured by others", "0", usernetes, dashed=True)
    yield _Series("GKE, measured by others", "2", gke, dashed=True)


def _legend(series: Sequence[_Series]) -> Iterator[str]:
    x = 24.0
    for one in series:
        dashed = " gc-dashed" if one.dashed else ""
        yield f'<path class="gc-series gc-s{one.tone}{dashed}" d="M{x:g} 84h30"/>'
        if not one.dashed:
            yield f'<circle class="gc-t{one.tone}" cx="{x + 15:g}" cy="84" r="4.5"/>'
        yield label("chip", x + 38, 88, one.name)
        x += 38 + 7.2 * len(one.name) + 24


def _grid(scale: _Scale, nodes: Sequence[int], step: int) -> Iterator[str]:
    left, right, bottom = _LEFT, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for seconds in range(0, int(scale.seconds) + 1, step):
        y = scale.y(seconds)
        yield f'<path class="gc-axis" d="M{left} {y:g}H{right}"/>'
        yield label("small", left - 10, y + 4, words(seconds) if seconds else "0", anchor="end")
    for count in nodes:
        x = scale.x(count)
        yield f'<path class="gc-axis" d="M{x:g} {bottom}v6"/>'
        yield label("small", x, bottom + 22, str(count), anchor="middle")
    yield label("facts", (left + right) / 2, bottom + 46, "nodes", anchor="middle")
    yield label("facts", left - 10, _TOP - 18, "time", anchor="end")


def _line(one: _Series, scale: _Scale) -> Iterator[str]:
    # Several runs with as many nodes are dots above each other; the line goes through the fastest.
    fastest: dict[int, float] = {}
    for nodes, seconds in one.points:
        fastest[nodes] = min(seconds, fastest.get(nodes, seconds))
    path = " ".join(f"{scale.x(n):.1f},{scale.y(fastest[n]):.1f}" for n in sorted(fastest))
    dashed = " gc-dashed" if one.dashed else ""
    yield f'<polyline class="gc-series gc-s{one.tone}{dashed}" points="{path}"/>'
    for nodes, seconds in () if one.dashed else one.points:
        x, y = scale.x(nodes), scale.y(seconds)
        yield f'<circle class="gc-t{one.tone}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
        if seconds == fastest[nodes]:
            yield label("small", x, y - 11, words(seconds), anchor="middle")
