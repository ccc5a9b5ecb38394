"""The attacks that tests make, by their markers; docs/security.md shows them on the site."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

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


def attacks() -> list[Attack]:
    """Every attack that a test is marked with.

    Raises:
        ValueError: a marker's fields are not three literal strings, or its test is expected to fail.
    """
    written = (one for path in ROOT.glob("tests/**/test_*.py") for one in _in_file(path))
    listed = (one for path in ROOT.glob("tests/**/*.attacks.yaml") for one in _in_data(path))
    return sorted([*written, *listed])


def _in_data(path: Path) -> Iterator[Attack]:
    """Rows of a table: those that are attacks say so."""
    test = path.relative_to(ROOT).as_posix().removesuffix(".attacks.yaml") + ".py"
    for row in yaml.safe_load(path.read_text(encoding="utf-8"))["attacks"].values():
        if "attack" in row:
            yield Attack(**row["attack"], test=test)


def _in_file(path: Path) -> Iterator[Attack]:
    source = path.read_text(encoding="utf-8")
    if "mark.attack(" not in source:
        return
    name = path.relative_to(ROOT).as_posix()
    for node in ast.walk(ast.parse(source)):
        marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", ())]
        fails = any(mark.startswith("pytest.mark.xfail") for mark in marks)
        if fails and any("pytest.mark.attack(" in mark for mark in marks):
            raise ValueError(f"{name}:{node.lineno}: this attack succeeds")
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.attack"):
            continue
        given = {
            word.arg: word.value.value
            for word in node.keywords
            if isinstance(word.value, ast.Constant) and isinstance(word.value.value, str)
        }
        if node.args or set(given) != set(FIELDS) or len(node.keywords) != len(FIELDS):
            raise ValueError(f"{name}:{node.lineno}: write {', '.join(FIELDS)} as literal strings")
        yield Attack(**given, test=name)


def render(found: list[Attack]) -> str:
    """The count, then a table by attacker."""
    rows = ((one.by, one.tries, one.stopped_by, f"`{one.test}`") for one in found)
    head = ("Attacker", "Tries to", "Stopped by", "Test")
    return f"{len(found)} attacks are tests, and all are held.\n\n{table(head, rows)}"
