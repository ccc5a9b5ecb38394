"""The changes themselves, component by component, each resource with the properties that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from gpuclusters.review.diffing import Difference, properties
from gpuclusters.review.limits import Block, Weighted
from gpuclusters.review.plan import Action, Step
from gpuclusters.review.review import Review
from gpuclusters.review.text import cut, fence, plural, visible

SIGNS = {
    Action.CREATE: "+",
    Action.UPDATE: "~",
    Action.REPLACE: "±",
    Action.DELETE: "-",
    Action.ADOPT: "=",
    Action.SAME: "*",
}
_MOST_DIFFERENCES = 40
_MOST_STEPS = 60
_MOST_PROPERTIES = 14


def group_blocks(review: Review) -> Iterator[Block]:
    """A block for every component that changes; what is only made or deleted has its names alone."""
    groups = review.groups
    for name, steps in groups.items():
        told = _told(steps)
        for first in range(0, len(steps), _MOST_STEPS):
            part = f"{name}, from {first + 1:,}" if first else name
            lines = [
                line
                for step in steps[first : first + _MOST_STEPS]
                for line in step_lines(step, review.differences(step))
            ]
            yield Block(_block(part, lines, told, opened=len(groups) <= 3), Weighted.MAY)


def _block(name: str, lines: list[str], told: str, *, opened: bool) -> str:
    marks = fence(lines)
    # The summary is HTML, in which forges read no Markdown; nobody is mentioned and nothing linked in code.
    title = f"<code>{escape(cut(visible(name), 120))}</code>: {told}"
    state = " open" if opened else ""
    return "\n".join(
        [
            f"<details{state}><summary>{title}</summary>",
            "",
            f"{marks}diff",
            *lines,
            marks,
            "",
            "</details>",
        ]
    )


def _told(steps: Sequence[Step]) -> str:
    words = {
        Action.DELETE: "deleted",
        Action.REPLACE: "replaced",
        Action.UPDATE: "updated",
        Action.CREATE: "created",
        Action.ADOPT: "taken over",
        Action.SAME: "protected or unprotected",
    }
    told = [
        f"{count:,} {word}"
        for action, word in words.items()
        if (count := sum(step.action is action for step in steps))
    ]
    return ", ".join(told)


def step_lines(step: Step, found: Sequence[Difference]) -> list[str]:
    """A resource and what differs of it, as lines of a diff."""
    sign = SIGNS.get(step.action, " ")
    title = f"{sign} {visible(step.resource.type)} {cut(visible(step.name), 120)}"
    if step.is_component:
        return [title] if step.unprotected or step.newly_protected else []
    # Only + and - are coloured; what is replaced is both gone and new.
    lines = [title.replace("~ ", "! ", 1) if sign in "~±" else title]
    if sign == "±":
        lines = [f"- {visible(step.resource.type)} {cut(visible(step.name), 120)} (replaced)"]
    for difference in found[:_MOST_DIFFERENCES]:
        lines += _difference(difference)
    if len(found) > _MOST_DIFFERENCES:
        lines.append(
            f"    … and {plural(len(found) - _MOST_DIFFERENCES, 'property', 'properties')} more"
        )
    if step.action is Action.CREATE:
        lines += [
            f"+     {visible(key)}: {value}"
            for key, value in properties(step.resource)[:_MOST_PROPERTIES]
        ]
    return lines


def _difference(difference: Difference) -> Iterator[str]:
    path = cut(difference.path, 160) or "…"
    note = f"  ({difference.note})" if difference.note else ""
    if difference.lines:
        yield f"      {path}:{note}"
        for line in difference.lines:
            head = line[:1] if line[:1] in "+-" else " "
            yield f"{head}         {line[1:] if head != ' ' else line}"
        return
    if difference.before is None and difference.after is None:
        yield f"      {path}{note}" if difference.path else f"      {difference.note}"
        return
    if difference.before == difference.after:
        yield f"      {path}: {difference.before}{note}"
        return
    if difference.before is not None:
        yield f"-     {path}: {difference.before}{note if difference.after is None else ''}"
    if difference.after is not None:
        yield f"+     {path}: {difference.after}{note}"
