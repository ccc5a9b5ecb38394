"""The generated tables of docs/preflight.md: every finding, its cause, its fix, who says so.

`python -m gpuclusters.config.preflight_reference` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from gpuclusters.domain import preflight_hardware_kinds, preflight_software_kinds
from gpuclusters.domain.preflight_expects import Stage
from gpuclusters.domain.preflight_kind import PREFIX, Kind, Severity

PAGE = Path(__file__).resolve().parents[2] / "docs" / "preflight.md"
BEGIN = "<!-- the findings: written by `python -m gpuclusters.config.preflight_reference` -->"
END = "<!-- end of the findings -->"

_WHEN = {
    frozenset(Stage): "always",
    frozenset({Stage.BARE}): "before",
    frozenset({Stage.PREPARED}): "after",
}


def tables() -> str:
    """The tables, a heading each."""
    return "\n\n".join(
        (
            "### Hardware and firmware setup\n\n" + _table(preflight_hardware_kinds.KINDS),
            "### Account, drivers, programs, fabric manager\n\n"
            + _table(preflight_software_kinds.KINDS),
        )
    )


def _table(kinds: Mapping[str, Kind]) -> str:
    return "\n".join(
        [
            _row(("Finding", "When", "", "Cause", "Fix", "Source")),
            _row(["---"] * 6),
            *(_row(_cells(name, kind)) for name, kind in kinds.items()),
        ]
    )


def _cells(name: str, kind: Kind) -> Iterable[str]:
    word = "stops" if kind.severity is Severity.FAILURE else "warns"
    return f"`{PREFIX}{name}`", _WHEN[kind.stages], word, kind.cause, kind.remedy, kind.source


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def rendered(page: str) -> str:
    """The page with its tables as the code has them.

    Raises:
        ValueError: the page has lost the marks around them.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} needs the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
