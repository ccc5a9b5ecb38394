"""What is said of a review, part by part, before it becomes Markdown or HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuclusters.policy.rule import Severity
from gpuclusters.review.cost import Item as Priced
from gpuclusters.review.diffing import Difference, properties
from gpuclusters.review.impact import Weight
from gpuclusters.review.plan import Action, Step
from gpuclusters.review.review import Finding, Review
from gpuclusters.review.text import cut, listed, plural, visible

SIGNS = {
    Action.CREATE: "+",
    Action.UPDATE: "~",
    Action.REPLACE: "±",
    Action.DELETE: "-",
    Action.ADOPT: "=",
    Action.SAME: "*",
}
_MOST_DIFFERENCES = 40
_MOST_PROPERTIES = 14


class Code(str):
    """A name out of a plan, shown as code."""


class Prose(str):
    """A text out of a plan, or with names of it. Any other text is our own."""


Line = tuple[str, ...]
Row = tuple[str, str, str, str]
"""What is counted, before, after, and the change."""


@dataclass(frozen=True, slots=True)
class Item:
    line: Line
    bad: bool | None = None
    """Whether it is a danger, or to be looked at; None: neither."""


@dataclass(frozen=True, slots=True)
class Section:
    title: Line
    tail: Line = ()
    table: Sequence[Row] = ()
    items: Sequence[Item] = ()
    notes: Sequence[str] = ()


def sections(review: Review, most: int, *, whole: bool) -> Iterator[Section]:
    """All parts but the head and the changes; no list is longer than `most`.

    A comment leaves out what stays as it is, which the whole review has.
    """
    yield from _downtime(review, most)
    yield from _capacity(review, most, whole=whole)
    yield from _cost(review, whole=whole)
    yield from _policy(review, most, whole=whole)


def warnings(review: Review, most: int) -> Section | None:
    items = [Item((Prose(warning),)) for warning in review.plan.warnings]
    return Section(("Warnings of the preview",), items=_few(items, most)) if items else None


def _few(items: Sequence[Item], most: int) -> list[Item]:
    rest = len(items) - most
    return [*items[:most], *([Item((f"… and {rest:,} more",))] if rest > 0 else [])]


def _downtime(review: Review, most: int) -> Iterator[Section]:
    items = [
        Item((_name(impact.step), " ", Prose(impact.says)), bad=impact.weight is Weight.DANGER)
        for impact in review.downtime
    ]
    if items:
        yield Section(("What it takes down or interrupts",), items=_few(items, most))


def _name(step: Step) -> Code:
    return Code(f"{step.resource.kind} {step.name}")


def _capacity(review: Review, most: int, *, whole: bool) -> Iterator[Section]:
    if review.switched is not None:
        gone, come = _codes(review.switched.gone), _codes(review.switched.come)
        tail = (": ", *gone, " goes, ", *come, " comes.")
        yield Section(("The cluster is another one",), tail)
    every = whole or len(review.capacities) == 1
    found = [capacity for capacity in review.capacities if every or capacity.changes]
    for capacity in found[:most]:
        rows = [
            (
                row.what,
                f"{row.before:,}",
                f"{row.after:,}",
                f"{row.after - row.before:+,}" if row.after != row.before else "",
            )
            for row in capacity.rows
        ]
        title = ("Capacity of ", Code(f"{capacity.type} {capacity.cluster}"))
        notes = [capacity.note] if capacity.note else []
        if capacity is found[-1] and not review.plan.complete:
            listing = "the plan does not list what stays (`preview --json --show-sames` does)"
            notes.append(f"Counted in what changes alone: {listing}.")
        yield Section(title, table=rows, notes=notes)
    if len(found) > most:
        yield Section((f"… and {len(found) - most} more clusters",))


def _codes(names: Sequence[str]) -> Line:
    return tuple(part for name in names for part in (", ", Code(name)))[1:]


def _cost(review: Review, *, whole: bool) -> Iterator[Section]:
    cost, table = review.cost, review.cost.table
    if not (cost.before.items or cost.after.items):
        return
    unknown = {"comes": cost.new_unknown, "goes": cost.gone_unknown}
    if whole:
        unknown["stays"] = tuple(i for i in cost.after.unknown if i not in cost.new_unknown)
    items = [item for what, some in unknown.items() for item in _unknown(what, some)]
    if not items and not cost.before.known and not cost.after.known:
        same = plural(len(cost.after.items), "machine or disk", "machines and disks")
        yield Section(("Cost",), (f": unknown for {same}, unchanged",))
        return
    tail = (f" (list prices of {table.as_of.isoformat()}, {table.currency})",)
    yield Section(("Cost",), tail, list(cost.rows()), items)


def _unknown(what: str, items: Sequence[Priced]) -> Iterator[Item]:
    reasons: dict[str, list[str]] = {}
    for item in items:
        reasons.setdefault(item.why, []).append(item.what)
    for why, names in list(reasons.items())[:5]:
        yield Item((f"cost unknown, {what}: ", Prose(listed(names)), " (", Prose(why), ")"))


def _policy(review: Review, most: int, *, whole: bool) -> Iterator[Section]:
    shown = [f for f in review.findings if f.new or whole]
    same: dict[tuple[str, str, bool], list[Finding]] = {}
    for finding in shown:
        same.setdefault((finding.rule.id, finding.says, finding.new), []).append(finding)
    items = []
    for (id_, says, new), some in same.items():
        names = some if whole else some[:3]
        more = f" and {len(some) - len(names):,} more" if len(some) > len(names) else ""
        before = "" if new else ", there before"
        line = (*_codes([one.name for one in names]), more, ": ", Prose(says), " (", Code(id_))
        items.append(Item((*line, f"{before})"), bad=some[0].rule.severity is Severity.MANDATORY))
    items = _few(items, most)
    old = [f.rule.id for f in review.findings if f not in shown]
    if old:
        said = f"{plural(len(old), 'finding')} that {'was' if len(old) == 1 else 'were'} there before: "
        items.append(Item((said, *_codes(sorted(set(old))))))
    if items:
        yield Section(("Policy",), items=items)


def step_lines(step: Step, found: Sequence[Difference]) -> list[str]:
    """A resource and what differs of it, as lines of a diff."""
    sign = SIGNS.get(step.action, " ")
    called = f"{visible(step.resource.type)} {cut(visible(step.name), 120)}"
    title = f"{sign} {called}"
    if step.is_component:
        return [title] if step.unprotected or step.newly_protected else []
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
