"""What `doctor` says: one line for each thing that it looked at, with the fix where one is needed."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from rich.console import Console
from rich.markup import escape

from gpuclusters.core import codes, finding
from gpuclusters.core.errors import AdapterError, with_code
from gpuclusters.core.finding import Finding
from gpuclusters.review.text import plural


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


_MARKS = {
    Level.OK: "[green]ok  [/green]",
    Level.WARNING: "[yellow]warn[/yellow]",
    Level.FAILURE: "[red]fail[/red]",
}
_MANY = 4


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was looked at. What is not well says what to do."""

    area: str
    """`workstation`, `configuration`, `backend`, …, or the name of a machine."""
    level: Level
    text: str
    fix: str = ""
    id: str = ""
    """Its code, `preflight.iommu-off`; empty where all is well."""


def well(area: str, text: str) -> Diagnosis:
    return Diagnosis(area, Level.OK, text)


def warning(area: str, text: str, code: str, fix: str = "") -> Diagnosis:
    """Works, but will hurt. The fix is that of the code, unless more is known."""
    return Diagnosis(area, Level.WARNING, text, fix or codes.of(code).do, code)


def failure(area: str, text: str, code: str, fix: str = "") -> Diagnosis:
    """`up` would stop here. The fix is that of the code, unless more is known."""
    return replace(warning(area, text, code, fix), level=Level.FAILURE)


def unreachable(area: str, error: AdapterError) -> Diagnosis:
    return failure(area, f"{error.where}: {error.problem}", error.error_id, error.remedy)


def of_findings(area: str, found: Iterable[Finding]) -> Iterator[Diagnosis]:
    """What `up` would refuse is a failure, all else a warning."""
    for one in found:
        if one.level is finding.Level.BLOCK:
            yield failure(area, one.problem, one.code, one.remedy)
        else:
            puts_back = "`gpu-clusters up --refresh` puts it back"
            yield warning(area, one.problem, one.code, puts_back if one.step else one.remedy)


def worst(found: Iterable[Diagnosis]) -> Level:
    levels = {diagnosis.level for diagnosis in found}
    return next((one for one in (Level.FAILURE, Level.WARNING) if one in levels), Level.OK)


def exit_code(found: Iterable[Diagnosis]) -> int:
    """0 all well, 1 warnings, 2 failures."""
    return list(Level).index(worst(found))


def show(console: Console, found: Sequence[Diagnosis], seconds: float) -> None:
    """A line for each area that is well, and what is not with its fix beneath it."""
    found = _gathered(found)
    areas = dict.fromkeys(diagnosis.area for diagnosis in found)
    width = max(map(len, areas), default=0)

    def line(level: Level, area: str, text: str) -> None:
        head = f"{_MARKS[level]} [bold]{area:<{width}}[/bold]"
        console.print(f"{head} {escape(text)}", soft_wrap=True)

    for area in areas:
        mine = [diagnosis for diagnosis in found if diagnosis.area == area]
        if fine := "; ".join(d.text for d in mine if d.level is Level.OK):
            line(Level.OK, area, fine)
        for one in mine:
            if one.level is not Level.OK:
                line(one.level, area, with_code(one.text, one.id))
                console.print(f"{'':{width + 6}}[dim]do:[/dim] {escape(one.fix)}", soft_wrap=True)
    levels = [one.level for one in found]
    counts = [plural(levels.count(i), i) for i in (Level.FAILURE, Level.WARNING) if i in levels]
    said = ", ".join(counts) or "all is well"
    console.print(f"\n{said} [dim]({seconds:.1f} s; nothing was changed)[/dim]")


def _gathered(found: Sequence[Diagnosis]) -> list[Diagnosis]:
    """With one line for many machines of which the same is to be said."""
    same: dict[Diagnosis, list[str]] = {}
    for one in found:
        same.setdefault(replace(one, area=""), []).append(one.area)
    gathered: list[Diagnosis] = []
    for one in found:
        areas = same[replace(one, area="")]
        if len(areas) < _MANY:
            gathered.append(one)
        elif one.area == areas[0]:
            text = f"{shortened(areas)}: {one.text}"
            gathered.append(replace(one, area=f"{len(areas)} machines", text=text))
    return gathered


def shortened(names: Sequence[str]) -> str:
    """Names of machines: some of many."""
    if len(names) <= _MANY:
        return ", ".join(names)
    return f"{', '.join(names[: _MANY - 1])}, … {names[-1]}"


def as_json(stack: str, found: Sequence[Diagnosis]) -> str:
    document = {
        "stack": stack,
        "verdict": worst(found),
        "findings": [asdict(diagnosis) for diagnosis in found],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)
