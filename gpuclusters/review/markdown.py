"""A review as Markdown for a comment: verdict first, then what goes down, then the details."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuclusters.policy.rule import Severity
from gpuclusters.review.capacity import Capacity
from gpuclusters.review.changes import group_blocks
from gpuclusters.review.cost import Cost, Item, by_reason
from gpuclusters.review.findings import Finding
from gpuclusters.review.impact import Impact, Weight
from gpuclusters.review.limits import Block, Weighted, fit
from gpuclusters.review.review import Failure, Outcome, Review, worst
from gpuclusters.review.text import code, listed, plural, prose
from gpuclusters.review.verdict import Level, counts

MARKER = "<!-- gpu-clusters review {key} -->"
_MOST_ROWS = 25
_MOST_REASONS = 4


def marker(key: str) -> str:
    """What a comment is found again by. Invisible, and nothing of `key` can close it."""
    safe = "".join(c if c.isalnum() or c in "-_./" else "_" for c in key)[:80].replace("--", "__")
    return MARKER.format(key=safe)


def markdown(
    outcomes: Sequence[Outcome], *, key: str, most: int, artifact: str | None = None
) -> str:
    """The comment."""
    blocks: list[Block] = []
    if len(outcomes) > 1:
        blocks.append(Block(_overall(outcomes), Weighted.MUST))
    for outcome in outcomes:
        heading = "##" if len(outcomes) == 1 else "###"
        blocks += (
            _failure(outcome, heading) if isinstance(outcome, Failure) else _one(outcome, heading)
        )
    return fit(blocks, most - len(marker(key)) - 2, artifact) + f"\n{marker(key)}\n"


def _overall(outcomes: Sequence[Outcome]) -> str:
    level = worst(outcomes)
    lines = [
        f"## {level.sign} {level.words}: {plural(len(outcomes), 'stack')}",
        "",
        "| stack | verdict | why |",
    ]
    lines.append("|---|---|---|")
    for outcome in outcomes[:_MOST_ROWS]:
        why = outcome.verdict.reasons[:2] if isinstance(outcome, Review) else ()
        lines.append(
            f"| {code(outcome.stack)} | {outcome.level.sign} {outcome.level.words} | "
            f"{prose('; '.join(why))} |"
        )
    if len(outcomes) > _MOST_ROWS:
        lines.append(f"| … and {len(outcomes) - _MOST_ROWS} more | | |")
    return "\n".join(lines)


def _failure(failure: Failure, heading: str) -> list[Block]:
    level = failure.level
    lines = [f"{heading} {level.sign} {level.words}: stack {code(failure.stack)}", ""]
    lines += [f"> {prose(line)}" for line in failure.message.splitlines()[:12] if line.strip()]
    lines += ["", "Nothing can be said about what this change does to the stack."]
    return [Block("\n".join(lines), Weighted.MUST)]


def _one(review: Review, heading: str) -> list[Block]:
    blocks = [Block(_head(review, heading), Weighted.MUST)]
    if review.level is Level.NOTHING:
        return blocks
    sections = (
        _downtime(review.downtime),
        _capacity(review),
        _cost(review.cost),
        _policy(review.findings),
    )
    blocks += [Block(text, Weighted.SHOULD) for text in sections if text]
    blocks += group_blocks(review)
    if review.plan.warnings:
        blocks.append(Block(_warnings(review.plan.warnings), Weighted.MAY))
    return blocks


def _head(review: Review, heading: str) -> str:
    level, reasons = review.level, review.verdict.reasons
    title = f"{heading} {level.sign} {level.words}: stack {code(review.stack)}"
    lines = [title, ""]
    lines += [f"- {prose(reason)}" for reason in reasons[:_MOST_REASONS]]
    if len(reasons) > _MOST_REASONS:
        lines.append(f"- … and {len(reasons) - _MOST_REASONS} more reasons, below")
    if level is Level.SAFE:
        lines.append("- nothing is deleted, replaced or interrupted")
    told = [f"{count:,} {word}" for word, count in counts(review.plan)]
    told.append(f"{review.plan.unchanged:,} unchanged")
    lines += [""] if lines[-1] else []
    return "\n".join([*lines, ", ".join(told)])


def _downtime(impacts: Sequence[Impact]) -> str:
    if not impacts:
        return ""
    lines = ["**What it takes down or interrupts**", ""]
    for impact in impacts[:_MOST_ROWS]:
        sign = "🔴" if impact.weight is Weight.DANGER else "🟡"
        lines.append(
            f"- {sign} {code(f'{impact.step.resource.kind} {impact.step.name}')} {prose(impact.says)}"
        )
    if len(impacts) > _MOST_ROWS:
        lines.append(f"- … and {len(impacts) - _MOST_ROWS:,} more")
    return "\n".join(lines)


def _capacity(review: Review) -> str:
    lines: list[str] = []
    if review.switched is not None:
        gone = ", ".join(map(code, review.switched.gone))
        come = ", ".join(map(code, review.switched.come))
        lines += [f"**The cluster is another one**: {gone} goes, {come} comes.", ""]
    shown = [c for c in review.capacities if c.changes or len(review.capacities) == 1]
    for capacity in shown[:_MOST_ROWS]:
        lines += [*_capacity_of(capacity), ""]
    if len(shown) > _MOST_ROWS:
        lines += [f"… and {len(shown) - _MOST_ROWS} more clusters", ""]
    if lines and not review.plan.complete:
        lines.append(
            "Counted in what changes alone: the plan does not list what stays "
            "(`preview --json --show-sames` does)."
        )
    return "\n".join(lines).rstrip()


def _capacity_of(capacity: Capacity) -> Iterator[str]:
    yield f"**Capacity of {code(f'{capacity.type} {capacity.cluster}')}**"
    yield ""
    yield "| | before | after | |"
    yield "|---|---:|---:|---|"
    for row in capacity.rows:
        change = row.after - row.before
        yield f"| {row.what} | {row.before:,} | {row.after:,} | {f'{change:+,}' if change else ''} |"
    if capacity.note:
        yield ""
        yield capacity.note


def _cost(cost: Cost) -> str:
    if not cost.applies:
        return ""
    table = cost.table
    unknown = [*_unknown("comes", cost.new_unknown), *_unknown("goes", cost.gone_unknown)]
    if not unknown and not cost.before.known and not cost.after.known:
        same = len(cost.after.items)
        return f"**Cost**: unknown for {plural(same, 'machine or disk', 'machines and disks')}, unchanged"
    lines = [
        f"**Cost** (list prices of {table.as_of.isoformat()}, {table.currency})", "",
        "| | before | after | |", "|---|---:|---:|---|",
        *(f"| {' | '.join(row)} |" for row in cost.rows()),
    ]  # fmt: skip
    return "\n".join([*lines, *([""] if unknown else []), *unknown])


def _unknown(what: str, items: Sequence[Item]) -> Iterator[str]:
    for why, names in list(by_reason(items).items())[:5]:
        yield f"- cost unknown, {what}: {prose(listed(names))} ({prose(why)})"


def _policy(findings: Sequence[Finding]) -> str:
    new = [f for f in findings if f.new]
    old = len(findings) - len(new)
    if not findings:
        return ""
    lines = ["**Policy**", ""]
    same: dict[tuple[str, str], list[str]] = {}
    rules = {finding.rule.id: finding.rule for finding in new}
    for finding in new:
        same.setdefault((finding.rule.id, finding.says), []).append(finding.name)
    for (id_, says), names in list(same.items())[:_MOST_ROWS]:
        sign = "🔴" if rules[id_].severity is Severity.MANDATORY else "🟡"
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        lines.append(f"- {sign} {', '.join(map(code, names[:3]))}{more}: {prose(says)} (`{id_}`)")
    if len(same) > _MOST_ROWS:
        lines.append(f"- … and {len(same) - _MOST_ROWS:,} more")
    if old:
        known = sorted({f.rule.id for f in findings if not f.new})
        lines.append(
            f"- {plural(old, 'finding')} that {'was' if old == 1 else 'were'} there before: "
            f"{', '.join(f'`{rule}`' for rule in known)}"
        )
    return "\n".join(lines)


def _warnings(warnings: Sequence[str]) -> str:
    lines = ["**Warnings of the preview**", ""]
    lines += [f"- {prose(warning)}" for warning in warnings[:10]]
    if len(warnings) > 10:
        lines.append(f"- … and {len(warnings) - 10:,} more")
    return "\n".join(lines)
