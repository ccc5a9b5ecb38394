"""The attacks that tests make, by their markers; docs/security.md shows them on the site."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docs.reference import table

ROOT = Path(__file__).resolve().parents[2]
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
    rows = (
        (
            f"**open** {one.by}" if one.is_open else one.by,
            one.tries,
            one.stopped_by,
            f"`{one.test}`",
        )
        for one in found
    )
    count = f"{len(found)} attacks are tests: {len(found) - still_open} held, {still_open} open."
    return f"{count}\n\n{table(('Attacker', 'Tries to', 'Stopped by', 'Test'), rows)}"
