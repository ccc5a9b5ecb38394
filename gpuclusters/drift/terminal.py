"""The report on a terminal: a few lines for each finding, worst first in each group."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from gpuclusters.core.codes import Severity
from gpuclusters.drift.finding import Finding, Group
from gpuclusters.drift.markdown import HEADINGS
from gpuclusters.drift.report import Report

_COLOURS = {Severity.CRITICAL: "red", Severity.WARNING: "yellow", Severity.NOTICE: "blue"}
_UP = {True: "`up` puts it back", False: "`up` does not put it back", None: "`up` may put it back"}
_MOST_PLANNED = 12


def show(console: Console, report: Report, seconds: float) -> None:
    """Print it."""
    for group in Group:
        found = report.of(group)
        if found:
            console.print(f"[bold]{HEADINGS[group]}[/bold]")
            for finding in found:
                _finding(console, finding)
            console.print()
    if report.unseen:
        console.print("[bold]Not looked at[/bold]")
        for unseen in report.unseen:
            _line(console, "  ", f"{unseen.what}: {unseen.why}")
            if unseen.do:
                _line(console, "    ", f"do: {unseen.do}", style="dim")
        console.print()
    if report.plan:
        _plan(console, report)
    if report.looked:
        told = ", ".join(f"{one.what} {one.count:,}" for one in report.looked)
        _line(console, "", f"looked at: {told}", style="dim")
    if report.ignored:
        _line(console, "", f"left out by --ignore: {report.ignored}", style="dim")
    colour = "green" if report.exit_code == 0 else "yellow"
    console.print(
        f"[{colour}]{escape(report.verdict)}[/{colour}] [dim]({seconds:.1f} s; nothing was changed)[/dim]",
        soft_wrap=True,
    )


def _finding(console: Console, finding: Finding) -> None:
    colour = _COLOURS[finding.severity]
    console.print(
        f"  [{colour}]{finding.severity:<8}[/{colour}] [bold]{escape(finding.where)}[/bold] "
        f"{escape(finding.title)} [dim]({finding.id})[/dim]",
        soft_wrap=True,
    )
    _line(console, "           ", finding.what)
    _line(console, "             declared: ", finding.declared or "nothing")
    _line(console, "             found:    ", finding.found or "nothing")
    for line in finding.details:
        _line(console, "                       ", line)
    if finding.by:
        _line(console, "             by:       ", finding.by)
    again = "" if finding.up else f": {finding.remedy}"
    _line(console, "             ", f"{_UP[finding.up]}{again}", style="dim")


def _plan(console: Console, report: Report) -> None:
    console.print(f"[bold]`gpu-clusters up --refresh` {report.up_would}[/bold]")
    for action, name in report.plan[:_MOST_PLANNED]:
        _line(console, "  ", f"{action} {name}")
    if len(report.plan) > _MOST_PLANNED:
        _line(console, "  ", f"… and {len(report.plan) - _MOST_PLANNED} more")
    console.print()


def _line(console: Console, indent: str, text: str, *, style: str = "") -> None:
    console.print(f"{indent}{escape(text)}", soft_wrap=True, style=style or None, highlight=False)
