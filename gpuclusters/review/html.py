"""A review as one HTML page: readable on a phone, in light and dark, with nothing fetched from anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources

from gpuclusters.drawing.from_fleet import drawn
from gpuclusters.drawing.svg import svg
from gpuclusters.policy.rule import Severity
from gpuclusters.review.changes import step_lines
from gpuclusters.review.cost import Cost, by_reason
from gpuclusters.review.fleet import fleet
from gpuclusters.review.impact import Weight
from gpuclusters.review.review import Failure, Outcome, Review, worst
from gpuclusters.review.text import cut, listed, plural, visible
from gpuclusters.review.verdict import counts

_MOST_STEPS = 500
_MOST_ROWS = 200


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
    yield from _list([_t(reason) for reason in review.verdict.reasons])
    told = [f"{count:,} {word}" for word, count in counts(review.plan)]
    yield f'<p class="counts">{", ".join([*told, f"{review.plan.unchanged:,} unchanged"])}</p>'
    yield from _downtime(review)
    yield from _capacity(review)
    yield from _cost(review.cost)
    yield from _policy(review)
    yield from _changes(review)
    yield from _list(
        [_t(warning) for warning in review.plan.warnings[:_MOST_ROWS]], "Warnings of the preview"
    )
    yield "</section>"


def _list(items: Sequence[str], title: str = "") -> Iterator[str]:
    if not items:
        return
    if title:
        yield f"<h3>{title}</h3>"
    yield "<ul>"
    yield from (f"<li>{item}</li>" for item in items[:_MOST_ROWS])
    if len(items) > _MOST_ROWS:
        yield f"<li>… and {len(items) - _MOST_ROWS:,} more</li>"
    yield "</ul>"


def _downtime(review: Review) -> Iterator[str]:
    yield from _list(
        [
            f'<span class="{"bad" if impact.weight is Weight.DANGER else "look"}">●</span> '
            f"<code>{_t(f'{impact.step.resource.kind} {impact.step.name}', 160)}</code> {_t(impact.says)}"
            for impact in review.downtime
        ],
        "What it takes down or interrupts",
    )


def _capacity(review: Review) -> Iterator[str]:
    if review.switched is not None:
        gone, come = (
            _t(listed(list(side))) for side in (review.switched.gone, review.switched.come)
        )
        yield f'<p class="bad">The cluster is another one: {gone} goes, {come} comes.</p>'
    for capacity in review.capacities[:_MOST_ROWS]:
        rows = [
            (
                _t(row.what),
                f"{row.before:,}",
                f"{row.after:,}",
                f"{row.after - row.before:+,}" if row.after != row.before else "",
            )
            for row in capacity.rows
        ]
        yield f"<h3>Capacity of {_t(f'{capacity.type} {capacity.cluster}')}</h3>"
        yield from _table(rows)
        if capacity.note:
            yield f"<p>{_t(capacity.note)}</p>"
    if review.capacities and not review.plan.complete:
        yield "<p>Counted in what changes alone: the plan does not list what stays.</p>"
    for cluster in fleet(review.plan, after=True).values():
        if cluster.machines:
            yield f"<figure>{svg(drawn(cluster, f'after this change, stack {review.stack}'))}</figure>"


def _table(rows: Sequence[tuple[str, str, str, str]]) -> Iterator[str]:
    yield "<table><thead><tr><th></th><th>before</th><th>after</th><th></th></tr></thead><tbody>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
    yield "</tbody></table>"


def _cost(cost: Cost) -> Iterator[str]:
    if not cost.applies:
        return
    table = cost.table
    yield f"<h3>Cost (list prices of {table.as_of.isoformat()}, {_t(table.currency)})</h3>"
    yield from _table(list(cost.rows()))
    unknown = by_reason(cost.after.unknown).items()
    yield from _list([f"cost unknown: {_t(listed(names))} ({_t(why)})" for why, names in unknown])


def _policy(review: Review) -> Iterator[str]:
    yield from _list(
        [
            f'<span class="{"bad" if finding.rule.severity is Severity.MANDATORY else "look"}">●</span> '
            f"<code>{_t(finding.name, 160)}</code> {_t(finding.says)} (<code>{_t(finding.rule.id)}</code>"
            f"{'' if finding.new else ', there before'})"
            for finding in review.findings
        ],
        "Policy",
    )


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
