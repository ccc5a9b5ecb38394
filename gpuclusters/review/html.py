"""A review as one HTML page: readable on a phone, in light and dark, with nothing fetched from anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources

from gpuclusters.drawing.picture import drawn
from gpuclusters.drawing.svg import svg
from gpuclusters.review.fleet import fleet
from gpuclusters.review.review import Failure, Outcome, Review, worst
from gpuclusters.review.sections import Code, Section, sections, step_lines, warnings
from gpuclusters.review.text import cut, listed, plural, visible

_MOST_STEPS = 500
_MOST_ROWS = 200
_SIGNS = {
    True: '<span class="bad">●</span> ',
    False: '<span class="look">●</span> ',
    None: "",
}


def page(outcomes: Sequence[Outcome]) -> str:
    """The page. The same reviews give the same bytes."""
    style = resources.files("gpuclusters.review").joinpath("page.css").read_text(encoding="utf-8")
    level = worst(outcomes)
    names = listed([outcome.stack for outcome in outcomes], 4)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta http-equiv="Content-Security-Policy" content="'
        "default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{_t(f'{level.words}: {names}')}</title>",
        f"<style>{style}</style></head><body>",
    ]
    if len(outcomes) > 1:
        parts.append(
            f'<h1 class="v{level.value}">{_t(level.words)}: {plural(len(outcomes), "stack")}</h1>'
        )
    for outcome in outcomes:
        parts += _failure(outcome) if isinstance(outcome, Failure) else _one(outcome)
    return "\n".join([*parts, "</body></html>", ""])


def _t(text: str, most: int = 600) -> str:
    return escape(cut(visible(text), most))


def _heading(outcome: Outcome) -> str:
    level = outcome.level
    return f'<h2 class="v{level.value}">{_t(level.words)}: stack {_t(outcome.stack)}</h2>'


def _failure(failure: Failure) -> Iterator[str]:
    yield f"<section>{_heading(failure)}"
    yield f"<pre>{escape(visible(failure.message, keep=chr(10))[:4000])}</pre></section>"


def _one(review: Review) -> Iterator[str]:
    yield f"<section>{_heading(review)}"
    yield from _list([_t(reason) for reason in review.reasons])
    yield f'<p class="counts">{review.counts}</p>'
    for section in sections(review, _MOST_ROWS, whole=True):
        yield from _section(section)
    for cluster in fleet(review.plan, after=True).values():
        if cluster.machines:
            yield f"<figure>{svg(drawn(cluster, f'after this change, stack {review.stack}'))}</figure>"
    yield from _changes(review)
    if warned := warnings(review, _MOST_ROWS):
        yield from _section(warned)
    yield "</section>"


def _section(section: Section) -> Iterator[str]:
    yield f"<h3>{_inline((*section.title, *section.tail))}</h3>"
    if section.table:
        yield "<table><thead><tr><th></th><th>before</th><th>after</th><th></th></tr></thead><tbody>"
        for row in section.table:
            yield f"<tr>{''.join(f'<td>{_t(cell)}</td>' for cell in row)}</tr>"
        yield "</tbody></table>"
    yield from _list([f"{_SIGNS[item.bad]}{_inline(item.line)}" for item in section.items])
    yield from (f"<p>{_t(note)}</p>" for note in section.notes)


def _inline(line: Sequence[str]) -> str:
    return "".join(
        f"<code>{_t(text, 160)}</code>" if isinstance(text, Code) else _t(text) for text in line
    )


def _list(items: Sequence[str]) -> Iterator[str]:
    if items:
        yield f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _changes(review: Review) -> Iterator[str]:
    if review.groups:
        yield "<h3>Changes</h3>"
    drawn_steps = 0
    for name, steps in review.groups.items():
        state = " open" if len(review.groups) <= 3 else ""
        yield f"<details{state}><summary><code>{_t(name, 160)}</code> {len(steps):,}</summary><pre>"
        for step in steps[: max(_MOST_STEPS - drawn_steps, 0)]:
            for line in step_lines(step, review.differences(step)):
                kind = {"+": "add", "-": "del", "!": "chg"}.get(line[:1], "")
                text = escape(line)
                yield f'<span class="{kind}">{text}</span>' if kind else text
        left = len(steps) - max(min(len(steps), _MOST_STEPS - drawn_steps), 0)
        if left > 0:
            yield f"… and {left:,} more; review.json has all"
        drawn_steps += len(steps)
        yield "</pre></details>"
