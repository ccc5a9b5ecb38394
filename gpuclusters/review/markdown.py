"""A review as Markdown for a comment: verdict first, then what goes down, then the details."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from gpuclusters.review.plan import Action, Step
from gpuclusters.review.review import Failure, Level, Outcome, Review, worst
from gpuclusters.review.sections import Code, Prose, Section, sections, step_lines, warnings
from gpuclusters.review.text import (
    Block,
    Weighted,
    code,
    cut,
    fence,
    fit,
    marker,
    plural,
    prose,
    visible,
)

_MOST_ROWS = 25
_MOST_REASONS = 4
_MOST_STEPS = 60
_MOST_WARNINGS = 10
_SIGNS = {True: "🔴 ", False: "🟡 ", None: ""}
_DONE = {
    Action.DELETE: "deleted",
    Action.REPLACE: "replaced",
    Action.UPDATE: "updated",
    Action.CREATE: "created",
    Action.ADOPT: "taken over",
    Action.SAME: "protected or unprotected",
}


def markdown(
    outcomes: Sequence[Outcome], *, key: str, most: int, artifact: str | None = None
) -> str:
    """The comment, of `most` characters; where it is cut it says that the whole review is in `artifact`."""
    several = len(outcomes) > 1
    blocks = [Block(_overall(outcomes), Weighted.MUST)] if several else []
    heading = "###" if several else "##"
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            blocks.append(_failure(outcome, heading))
        else:
            blocks += _one(outcome, heading)
    mark = marker(key, "review")
    return fit(blocks, most - len(mark) - 2, artifact) + f"\n{mark}\n"


def _overall(outcomes: Sequence[Outcome]) -> str:
    level = worst(outcomes)
    title = f"## {level.sign} {level.words}: {plural(len(outcomes), 'stack')}"
    lines = [title, "", "| stack | verdict | why |", "|---|---|---|"]
    for outcome in outcomes[:_MOST_ROWS]:
        why = outcome.reasons[:2] if isinstance(outcome, Review) else ()
        said = f"{outcome.level.sign} {outcome.level.words} | {prose('; '.join(why))}"
        lines.append(f"| {code(outcome.stack)} | {said} |")
    if len(outcomes) > _MOST_ROWS:
        lines.append(f"| … and {len(outcomes) - _MOST_ROWS} more | | |")
    return "\n".join(lines)


def _title(outcome: Outcome, heading: str) -> str:
    return f"{heading} {outcome.level.sign} {outcome.level.words}: stack {code(outcome.stack)}"


def _failure(failure: Failure, heading: str) -> Block:
    lines = [_title(failure, heading), ""]
    lines += [f"> {prose(line)}" for line in failure.message.splitlines()[:12] if line.strip()]
    lines += ["", "Nothing can be said about what this change does to the stack."]
    return Block("\n".join(lines), Weighted.MUST)


def _one(review: Review, heading: str) -> Iterator[Block]:
    yield Block(_head(review, heading), Weighted.MUST)
    if review.level is Level.NOTHING:
        return
    for section in sections(review, _MOST_ROWS, whole=False):
        yield Block(_section(section), Weighted.SHOULD)
    yield from _groups(review)
    if warned := warnings(review, _MOST_WARNINGS):
        yield Block(_section(warned), Weighted.MAY)


def _head(review: Review, heading: str) -> str:
    reasons = review.reasons
    lines = [_title(review, heading), ""]
    lines += [f"- {prose(reason)}" for reason in reasons[:_MOST_REASONS]]
    if len(reasons) > _MOST_REASONS:
        lines.append(f"- … and {len(reasons) - _MOST_REASONS} more reasons, below")
    if review.level is Level.SAFE:
        lines.append("- nothing is deleted, replaced or interrupted")
    lines += [""] if lines[-1] else []
    return "\n".join([*lines, review.counts])


def _section(section: Section) -> str:
    parts = [f"**{_inline(section.title)}**{_inline(section.tail)}"]
    if section.table:
        rows = (f"| {' | '.join(row)} |" for row in section.table)
        parts.append("\n".join(["| | before | after | |", "|---|---:|---:|---|", *rows]))
    if section.items:
        parts.append("\n".join(f"- {_SIGNS[i.bad]}{_inline(i.line)}" for i in section.items))
    return "\n\n".join([*parts, *section.notes])


def _inline(line: Sequence[str]) -> str:
    return "".join(
        code(text) if isinstance(text, Code) else prose(text) if isinstance(text, Prose) else text
        for text in line
    )


def _groups(review: Review) -> Iterator[Block]:
    """A block for every component that changes; what is only made or deleted has its names alone."""
    for name, steps in review.groups.items():
        for first in range(0, len(steps), _MOST_STEPS):
            part = f"{name}, from {first + 1:,}" if first else name
            some = steps[first : first + _MOST_STEPS]
            lines = [line for step in some for line in step_lines(step, review.differences(step))]
            marks = fence(lines)
            # The summary is HTML, in which forges read no Markdown; nobody is mentioned in code.
            title = f"<code>{escape(cut(visible(part), 120))}</code>: {_done(steps)}"
            state = " open" if len(review.groups) <= 3 else ""
            head = f"<details{state}><summary>{title}</summary>\n\n{marks}diff"
            yield Block("\n".join([head, *lines, f"{marks}\n\n</details>"]), Weighted.MAY)


def _done(steps: Sequence[Step]) -> str:
    counted = (
        (sum(step.action is action for step in steps), word) for action, word in _DONE.items()
    )
    return ", ".join(f"{count:,} {word}" for count, word in counted if count)
