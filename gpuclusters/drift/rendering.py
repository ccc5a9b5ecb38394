"""The report on a terminal, and as Markdown for an issue: nothing in a name becomes markup or a mention."""

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape

from gpuclusters.core.codes import Severity
from gpuclusters.drift.report import Finding, Group, Report
from gpuclusters.review.text import Block, Weighted, code, cut, fence, fit, marker, plural, prose

SIGNS = {Severity.CRITICAL: "🔴", Severity.WARNING: "🟡", Severity.NOTICE: "🔵"}
HEADINGS = {
    Group.HOSTS: "Machines",
    Group.CLUSTER: "Cluster",
    Group.TENANTS: "Tenants",
    Group.HELM: "Helm releases",
    Group.STACK: "Objects of the stack",
}
_MOST_PLANNED = 20
_COLOURS = {Severity.CRITICAL: "red", Severity.WARNING: "yellow", Severity.NOTICE: "blue"}
_UP = {True: "`up` puts it back", False: "`up` does not put it back", None: "`up` may put it back"}
_MOST_SHOWN = 12


def markdown(report: Report, *, most: int) -> str:
    blocks = [Block(_head(report), Weighted.MUST)]
    if report.unseen:
        blocks.append(Block(_unseen(report), Weighted.MUST))
    for group in Group:
        found = report.of(group)
        if found:
            blocks.append(Block(f"### {HEADINGS[group]}", Weighted.SHOULD))
            blocks += [Block("\n".join(_lines(finding)), Weighted.SHOULD) for finding in found]
    if report.planned and report.plan:
        blocks.append(Block(_plan(report), Weighted.MAY))
    mark = marker(report.stack, "drift")
    return fit(blocks, most - len(mark) - 2) + f"\n\n{mark}\n"


def _head(report: Report) -> str:
    there = [severity for severity in Severity if report.count(severity)]
    sign = SIGNS[there[0]] if there else "⚪" if report.unseen else "🟢"
    counts = ", ".join(f"{report.count(severity):,} {severity}" for severity in there)
    lines = [f"## {sign} stack {code(report.stack)}: {report.verdict}"]
    if counts:
        lines += ["", f"{counts}."]
    if report.ignored:
        lines += ["", f"{plural(report.ignored, 'finding')} left out by `--ignore`."]
    if report.looked:
        lines += ["", f"Looked at: {_looked(report)}."]
    return "\n".join(lines)


def _unseen(report: Report) -> str:
    why = "Nothing is known of these; they may have drifted as well."
    lines = ["### Not looked at", "", why, ""]
    for unseen in report.unseen:
        remedy = f" {prose(unseen.do)}" if unseen.do else ""
        lines.append(f"- {code(unseen.what)}: {prose(unseen.why)}.{remedy}")
    return "\n".join(lines)


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
    yield f"  - {_UP[finding.up]}: {_remedy(finding.remedy)}"


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


def show(console: Console, report: Report, seconds: float) -> None:
    for group in Group:
        if found := report.of(group):
            console.print(f"[bold]{HEADINGS[group]}[/bold]")
            for finding in found:
                _print_finding(console, finding)
            console.print()
    if report.unseen:
        console.print("[bold]Not looked at[/bold]")
        for unseen in report.unseen:
            _print(console, f"  {unseen.what}: {unseen.why}")
            if unseen.do:
                _print(console, f"    do: {unseen.do}", "dim")
        console.print()
    if report.plan:
        console.print(f"[bold]`gpu-clusters up --refresh` {report.up_would}[/bold]")
        for action, name in report.plan[:_MOST_SHOWN]:
            _print(console, f"  {action} {name}")
        if len(report.plan) > _MOST_SHOWN:
            _print(console, f"  … and {len(report.plan) - _MOST_SHOWN} more")
        console.print()
    if report.looked:
        _print(console, f"looked at: {_looked(report)}", "dim")
    if report.ignored:
        _print(console, f"left out by --ignore: {report.ignored}", "dim")
    colour = "green" if report.exit_code == 0 else "yellow"
    took = f"[dim]({seconds:.1f} s; nothing was changed)[/dim]"
    console.print(f"[{colour}]{escape(report.verdict)}[/{colour}] {took}", soft_wrap=True)


def _looked(report: Report) -> str:
    return ", ".join(f"{one.what} {one.count:,}" for one in report.looked)


def _print_finding(console: Console, finding: Finding) -> None:
    colour = _COLOURS[finding.severity]
    console.print(
        f"  [{colour}]{finding.severity:<8}[/{colour}] [bold]{escape(finding.where)}[/bold] "
        f"{escape(finding.title)} [dim]({finding.id})[/dim]",
        soft_wrap=True,
    )
    _print(console, f"{'':11}{finding.what}")
    told = [("declared:", finding.declared or "nothing"), ("found:", finding.found or "nothing")]
    told += [("", line) for line in finding.details]
    told += [("by:", finding.by)] if finding.by else []
    for name, text in told:
        _print(console, f"{'':13}{name:<10}{text}")
    again = "" if finding.up else f": {finding.remedy}"
    _print(console, f"{'':13}{_UP[finding.up]}{again}", "dim")


def _print(console: Console, text: str, style: str | None = None) -> None:
    console.print(escape(text), soft_wrap=True, style=style, highlight=False)
