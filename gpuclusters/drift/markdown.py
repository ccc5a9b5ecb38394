"""The report as Markdown, for an issue: nothing in a name becomes markup, a mention or a link."""

from __future__ import annotations

from collections.abc import Iterator

from gpuclusters.core.codes import Severity
from gpuclusters.drift.finding import Finding, Group
from gpuclusters.drift.report import Report
from gpuclusters.review.limits import Block, Weighted, fit
from gpuclusters.review.text import code, cut, fence, plural, prose

MARKER = "<!-- gpu-clusters drift {stack} -->"
SIGNS = {Severity.CRITICAL: "🔴", Severity.WARNING: "🟡", Severity.NOTICE: "🔵"}
HEADINGS = {
    Group.HOSTS: "Machines",
    Group.CLUSTER: "Cluster",
    Group.TENANTS: "Tenants",
    Group.HELM: "Helm releases",
    Group.STACK: "Objects of the stack",
}
_MOST_PLANNED = 20


def marker(stack: str) -> str:
    """What an issue is found again by; nothing of the name can close it."""
    safe = "".join(c if c.isalnum() or c in "-_./" else "_" for c in stack)[:80].replace("--", "__")
    return MARKER.format(stack=safe)


def markdown(report: Report, *, most: int) -> str:
    """The text."""
    blocks = [Block(_head(report), Weighted.MUST)]
    if report.unseen:
        blocks.append(Block(_unseen(report), Weighted.MUST))
    for group in Group:
        found = report.of(group)
        if found:
            blocks.append(Block(f"### {HEADINGS[group]}", Weighted.SHOULD))
            blocks += [Block(_finding(finding), Weighted.SHOULD) for finding in found]
    if report.planned and report.plan:
        blocks.append(Block(_plan(report), Weighted.MAY))
    mark = marker(report.stack)
    return fit(blocks, most - len(mark) - 2) + f"\n\n{mark}\n"


def _head(report: Report) -> str:
    sign = "⚪" if report.unseen else "🟢"
    sign = next((SIGNS[s] for s in Severity if report.count(s)), sign)
    counts = ", ".join(f"{report.count(s):,} {s}" for s in Severity if report.count(s))
    looked = ", ".join(f"{one.what} {one.count:,}" for one in report.looked)
    lines = [f"## {sign} stack {code(report.stack)}: {report.verdict}"]
    if counts:
        lines += ["", f"{counts}."]
    if report.ignored:
        lines += ["", f"{plural(report.ignored, 'finding')} left out by `--ignore`."]
    if looked:
        lines += ["", f"Looked at: {looked}."]
    return "\n".join(lines)


def _unseen(report: Report) -> str:
    lines = [
        "### Not looked at",
        "",
        "Nothing is known of these; they may have drifted as well.",
        "",
    ]
    for unseen in report.unseen:
        remedy = f" {prose(unseen.do)}" if unseen.do else ""
        lines.append(f"- {code(unseen.what)}: {prose(unseen.why)}.{remedy}")
    return "\n".join(lines)


def _finding(finding: Finding) -> str:
    return "\n".join(_lines(finding))


def _lines(finding: Finding) -> Iterator[str]:
    title = f"{code(finding.where)} {prose(finding.title)}: {code(finding.what)}"
    yield f"- {SIGNS[finding.severity]} **{finding.id}** {title}"
    yield f"  - declared: {prose(finding.declared or 'nothing')}"
    yield f"  - found: {prose(finding.found or 'nothing')}"
    if finding.details:
        marks = fence(list(finding.details))
        yield ""
        yield f"    {marks}"
        yield from (f"    {cut(line, 300)}" for line in finding.details)
        yield f"    {marks}"
        yield ""
    if finding.by:
        yield f"  - changed by: {code(finding.by)}"
    yield f"  - `up` {_answer(finding)}: {_remedy(finding.remedy)}"


def _answer(finding: Finding) -> str:
    return {True: "puts it back", False: "does not put it back", None: "may put it back"}[
        finding.up
    ]


def _remedy(text: str) -> str:
    """Prose with our own pieces of code in it; only what stands between backticks is code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return prose(text)
    return "".join(
        (code(part, 400) if index % 2 else prose(part)) if part else ""
        for index, part in enumerate(parts)
    )


def _plan(report: Report) -> str:
    lines = [
        f"<details><summary><code>gpu-clusters up --refresh</code> {report.up_would}: "
        f"{plural(len(report.plan), 'step')}</summary>",
        "",
    ]
    lines += [f"- {action} {code(name)}" for action, name in report.plan[:_MOST_PLANNED]]
    if len(report.plan) > _MOST_PLANNED:
        lines.append(f"- … and {len(report.plan) - _MOST_PLANNED:,} more")
    return "\n".join([*lines, "", "</details>"])
