"""The table of attacks in docs/security.md, made of the tests' markers: `python -m tests.docs.attacks`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "security.md"
START, END = "<!-- attacks: made by `make schema` -->\n", "<!-- end of attacks -->"
FIELDS = ("by", "tries", "stopped_by")


@dataclass(frozen=True, slots=True, order=True)
class Attack:
    """One attack that a test makes."""

    by: str
    tries: str
    stopped_by: str
    test: str
    """Path of the test's file."""
    is_open: bool
    """Whether the test is expected to fail, that is, the attack succeeds."""


def attacks() -> list[Attack]:
    """Every attack that a test is marked with.

    Raises:
        ValueError: a marker's fields are not three literal strings.
    """
    return sorted(attack for path in ROOT.glob("tests/**/test_*.py") for attack in _in_file(path))


def _in_file(path: Path) -> Iterator[Attack]:
    source = path.read_text(encoding="utf-8")
    if "mark.attack(" not in source:
        return
    name = path.relative_to(ROOT).as_posix()
    tree = ast.parse(source)
    expected_to_fail = {
        id(mark)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(_is_mark(mark, "xfail") for mark in node.decorator_list)
        for decorator in node.decorator_list
        for mark in ast.walk(decorator)
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and _is_mark(node, "attack")):
            continue
        given = {
            word.arg: word.value.value
            for word in node.keywords
            if isinstance(word.value, ast.Constant) and isinstance(word.value.value, str)
        }
        if node.args or set(given) != set(FIELDS) or len(node.keywords) != len(FIELDS):
            raise ValueError(f"{name}:{node.lineno}: write {', '.join(FIELDS)} as literal strings")
        yield Attack(**given, test=name, is_open=id(node) in expected_to_fail)


def _is_mark(node: ast.AST, name: str) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(called) == f"pytest.mark.{name}"


def render(found: list[Attack]) -> str:
    """The count, then a table by attacker."""
    still_open = sum(attack.is_open for attack in found)
    lines = [
        f"{len(found)} attacks are tests: {len(found) - still_open} held, {still_open} open.",
        "",
        "| Attacker | Tries to | Stopped by | Test |",
        "|---|---|---|---|",
    ]
    for attack in found:
        cells = (attack.by, attack.tries, attack.stopped_by, f"`{attack.test}`")
        state = "**open** " if attack.is_open else ""
        lines.append(f"| {state}{' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join([*lines, ""])


def fill(page: str) -> str:
    """The page with the table of now.

    Raises:
        ValueError: the page has no place for it.
    """
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"{PAGE.name} has no place for the table of attacks")
    return f"{before}{start}{render(attacks())}{end}{after}"


if __name__ == "__main__":
    sys.exit(0 if PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8") else 1)
