"""A review as Markdown: verdict first, then what goes down, then the details. The page is made of it."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from gpuclusters.policy.rule import Severity
from gpuclusters.review.cost import Item
from gpuclusters.review.diffing import Difference, properties
from gpuclusters.review.impact import Weight
from gpuclusters.review.plan import Action, Step
from gpuclusters.review.review import Failure, Finding, Level, Outcome, Review, worst
from gpuclusters.review.text import (
    Block,
    Weighted,
    code,
    cut,
    fence,
    fit,
    listed,
    marker,
    plural,
    prose,
    visible,
)

MOST_ROWS = 25
"""Of any list of a comment."""
_MOST_REASONS = 4
_MOST_STEPS = 60
_MOST_DIFFERENCES = 40
_MOST_PROPERTIES = 14
_DANGER, _LOOK = "🔴 ", "🟡 "
_SIGNS = {
    Action.CREATE: "+",
    Action.UPDATE: "~",
    Action.REPLACE: "±",
    Action.DELETE: "-",
    Action.ADOPT: "=",
    Action.SAME: "*",
}
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
        blocks.append(Block(head(outcome, heading), Weighted.MUST))
        if isinstance(outcome, Review) and outcome.level is not Level.NOTHING:
            found = sections(outcome, MOST_ROWS, whole=False)
            blocks += (Block(section, Weighted.SHOULD) for section in found)
            blocks += (Block(part, Weighted.MAY) for part in details(outcome, MOST_ROWS))
    mark = marker(key, "review")
    return fit(blocks, most - len(mark) - 2, artifact) + f"\n{mark}\n"


def _overall(outcomes: Sequence[Outcome]) -> str:
    level = worst(outcomes)
    title = f"## {level.sign} {level.words}: {plural(len(outcomes), 'stack')}"
    lines = [title, "", "| stack | verdict | why |", "|---|---|---|"]
    for outcome in outcomes[:MOST_ROWS]:
        why = outcome.reasons[:2] if isinstance(outcome, Review) else ()
        said = f"{outcome.level.sign} {outcome.level.words} | {prose('; '.join(why))}"
        lines.append(f"| {code(outcome.stack)} | {said} |")
    if len(outcomes) > MOST_ROWS:
        lines.append(f"| … and {len(outcomes) - MOST_ROWS} more | | |")
    return "\n".join(lines)


def head(outcome: Outcome, heading: str, most: int = _MOST_REASONS) -> str:
    """The verdict on a stack, and why."""
    level = outcome.level
    lines = [f"{heading} {level.sign} {level.words}: stack {code(outcome.stack)}", ""]
    if isinstance(outcome, Failure):
        lines += [f"> {prose(line)}" for line in outcome.message.splitlines()[:12] if line.strip()]
        lines += ["", "Nothing can be said about what this change does to the stack."]
        return "\n".join(lines)
    reasons = outcome.reasons
    lines += [f"- {prose(reason)}" for reason in reasons[:most]]
    if len(reasons) > most:
        lines.append(f"- … and {len(reasons) - most} more reasons, below")
    if level is Level.SAFE:
        lines.append("- nothing is deleted, replaced or interrupted")
    lines += [""] if lines[-1] else []
    return "\n".join([*lines, outcome.counts])


def sections(review: Review, most: int, *, whole: bool) -> Iterator[str]:
    """All parts but the head and the changes; no list is longer than `most`.

    A comment leaves out what stays as it is, which the whole review has.
    """
    down = [
        f"{_DANGER if impact.weight is Weight.DANGER else _LOOK}"
        f"{code(f'{impact.step.resource.kind} {impact.step.name}')} {prose(impact.says)}"
        for impact in review.impacts
    ]
    if down:
        yield f"**What it takes down or interrupts**\n\n{_list(down, most)}"
    yield from _capacity(review, most, whole=whole)
    yield from _cost(review, most, whole=whole)
    yield from _policy(review, most, whole=whole)


def _list(items: Sequence[str], most: int) -> str:
    rest = [f"… and {len(items) - most:,} more"] if len(items) > most else []
    return "\n".join(f"- {item}" for item in (*items[:most], *rest))


def _table(rows: Iterable[tuple[str, str, str, str]]) -> str:
    """What is counted, before, after, and the change."""
    lines = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join(["| | before | after | |", "|---|---:|---:|---|", *lines])


def _codes(names: Iterable[str]) -> str:
    return ", ".join(map(code, names))


def _capacity(review: Review, most: int, *, whole: bool) -> Iterator[str]:
    if review.switched is not None:
        gone, come = _codes(review.switched.gone), _codes(review.switched.come)
        yield f"**The cluster is another one**: {gone} goes, {come} comes."
    every = whole or len(review.capacities) == 1
    found = [capacity for capacity in review.capacities if every or capacity.changes]
    for capacity in found[:most]:
        rows = (
            (
                row.what,
                f"{row.before:,}",
                f"{row.after:,}",
                f"{row.after - row.before:+,}" if row.after != row.before else "",
            )
            for row in capacity.rows
        )
        title = f"**Capacity of {code(f'{capacity.type} {capacity.cluster}')}**"
        notes = [capacity.note] if capacity.note else []
        if capacity is found[-1] and not review.plan.complete:
            listing = "the plan does not list what stays (`preview --json --show-sames` does)"
            notes.append(f"Counted in what changes alone: {listing}.")
        yield "\n\n".join([title, _table(rows), *notes])
    if len(found) > most:
        yield f"**… and {len(found) - most} more clusters**"


def _cost(review: Review, most: int, *, whole: bool) -> Iterator[str]:
    cost, table = review.cost, review.cost.table
    if not (cost.before.items or cost.after.items):
        return
    unknown = {"comes": cost.new_unknown, "goes": cost.gone_unknown}
    if whole:
        unknown["stays"] = tuple(i for i in cost.after.unknown if i not in cost.new_unknown)
    items = [item for what, some in unknown.items() for item in _unknown(what, some)]
    if not items and not cost.before.known and not cost.after.known:
        same = plural(len(cost.after.items), "machine or disk", "machines and disks")
        yield f"**Cost**: unknown for {same}, unchanged"
        return
    title = f"**Cost** (list prices of {table.as_of.isoformat()}, {table.currency})"
    yield "\n\n".join([title, _table(cost.rows()), *([_list(items, most)] if items else [])])


def _unknown(what: str, items: Sequence[Item]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for item in items:
        reasons.setdefault(item.why, []).append(item.what)
    for why, names in list(reasons.items())[:5]:
        yield f"cost unknown, {what}: {prose(listed(names))} ({prose(why)})"


def _policy(review: Review, most: int, *, whole: bool) -> Iterator[str]:
    shown = [f for f in review.findings if f.new or whole]
    same: dict[tuple[str, str, bool], list[Finding]] = {}
    for finding in shown:
        same.setdefault((finding.rule.id, finding.says, finding.new), []).append(finding)
    items = []
    for (id_, says, new), some in same.items():
        names = some if whole else some[:3]
        more = f" and {len(some) - len(names):,} more" if len(some) > len(names) else ""
        sign = _DANGER if some[0].rule.severity is Severity.MANDATORY else _LOOK
        before = "" if new else ", there before"
        where = f"{_codes(one.name for one in names)}{more}"
        items.append(f"{sign}{where}: {prose(says)} ({code(id_)}{before})")
    parts = [_list(items, most)] if items else []
    old = [f.rule.id for f in review.findings if not (f.new or whole)]
    if old:
        found = f"{plural(len(old), 'finding')} that {'was' if len(old) == 1 else 'were'}"
        parts.append(f"- {found} there before: {_codes(sorted(set(old)))}")
    if parts:
        yield "\n\n".join(["**Policy**", "\n".join(parts)])


def details(review: Review, most: int) -> Iterator[str]:
    """A part for every component that changes; then the warnings of the preview."""
    for name, steps in review.groups.items():
        done = _done(steps)
        for first in range(0, len(steps), _MOST_STEPS):
            part = f"{name}, from {first + 1:,}" if first else name
            some = steps[first : first + _MOST_STEPS]
            lines = [line for step in some for line in _step(step, review.differences(step))]
            marks = fence(lines)
            # The summary is HTML, in which forges read no Markdown; nobody is mentioned in code.
            title = f"<code>{escape(cut(visible(part), 120))}</code>: {done}"
            state = " open" if len(review.groups) <= 3 else ""
            start = f"<details{state}><summary>{title}</summary>\n\n{marks}diff"
            yield "\n".join([start, *lines, f"{marks}\n\n</details>"])
    if warned := [prose(warning) for warning in review.plan.warnings]:
        yield f"**Warnings of the preview**\n\n{_list(warned, most)}"


def _done(steps: Sequence[Step]) -> str:
    counted = (
        (sum(step.action is action for step in steps), word) for action, word in _DONE.items()
    )
    return ", ".join(f"{count:,} {word}" for count, word in counted if count)


def _step(step: Step, found: Sequence[Difference]) -> list[str]:
    """A resource and what differs of it, as lines of a diff."""
    sign = _SIGNS.get(step.action, " ")
    called = f"{visible(step.resource.type)} {cut(visible(step.name), 120)}"
    title = f"{sign} {called}"
    if step.is_component:
        return [title] if step.protection_changes else []
    # Only + and - are coloured; what is replaced is both gone and new.
    lines = [f"- {called} (replaced)" if sign == "±" else title.replace("~ ", "! ", 1)]
    for difference in found[:_MOST_DIFFERENCES]:
        lines += _difference(difference)
    if len(found) > _MOST_DIFFERENCES:
        more = plural(len(found) - _MOST_DIFFERENCES, "property", "properties")
        lines.append(f"    … and {more} more")
    if step.action is Action.CREATE:
        stated = properties(step.resource)[:_MOST_PROPERTIES]
        lines += [f"+     {visible(key)}: {value}" for key, value in stated]
    return lines


def _difference(difference: Difference) -> Iterator[str]:
    before, after = difference.before, difference.after
    path = cut(difference.path, 160) or "…"
    note = f"  ({difference.note})" if difference.note else ""
    if difference.lines:
        yield f"      {path}:{note}"
        for line in difference.lines:
            head = line[:1] if line[:1] in "+-" else " "
            yield f"{head}         {line[1:] if head != ' ' else line}"
    elif before is None and after is None:
        yield f"      {path}{note}" if difference.path else f"      {difference.note}"
    elif before == after:
        yield f"      {path}: {before}{note}"
    else:
        if before is not None:
            yield f"-     {path}: {before}{note if after is None else ''}"
        if after is not None:
            yield f"+     {path}: {after}{note}"
