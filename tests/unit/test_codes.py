"""Codes are listed once, and what is listed is what the program says."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from gpuclusters.core import codes
from gpuclusters.core.finding import repair

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("gpuclusters", "components", "stacks", "caas", "lab")
CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\.[a-z0-9]+(-[a-z0-9]+)*")


@cache
def nodes() -> tuple[ast.AST, ...]:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    return tuple(node for file in files for node in ast.walk(ast.parse(file.read_text())))


@cache
def texts() -> frozenset[str]:
    return frozenset(
        node.value
        for node in nodes()
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@pytest.mark.parametrize("code", sorted(codes.listed()))
def test_a_code_is_said_somewhere_and_explained_in_sentences(code: str) -> None:
    assert CODE.fullmatch(code)
    area, _, fault = code.partition(".")
    assert {code, fault} & texts() or fault == "missing", f"listed in {area}.yaml, and said nowhere"
    told = codes.listed()[code]
    assert told.means.endswith((".", "!", "`")), told.means
    assert told.do.endswith((".", "!", "`")), told.do
    assert not told.like or told.like in codes.listed()
    assert all(case.problem or case.do for case in told.cases.values())


SAYING = {"Finding": 0, "blocked": 0, "repair": 0, "refused": 1}
SAYING |= dict.fromkeys(("_repair", "_join", "_settle", "_late", "anew"), 0)
"""Who says a code, and which argument it is; some are `repair` for one step."""


@cache
def said() -> tuple[tuple[str, ast.Call], ...]:
    """Each code that stands in a call, with the call."""
    calls = (node for node in nodes() if isinstance(node, ast.Call))
    named = ((one, one.func.id) for one in calls if isinstance(one.func, ast.Name))
    placed = ((one, one.args[SAYING[name] :]) for one, name in named if name in SAYING)
    found = ((rest[0], one) for one, rest in placed if rest)
    codes_said = ((c.value, one) for c, one in found if isinstance(c, ast.Constant))
    return tuple(
        (code, one) for code, one in codes_said if isinstance(code, str) and CODE.fullmatch(code)
    )


def test_every_code_that_is_said_is_listed() -> None:
    dotted = {code for code, _ in said()}
    assert dotted
    assert dotted - set(codes.listed()) == set()


def test_every_refusal_of_a_value_is_listed_and_every_listed_one_is_said() -> None:
    listed = set(codes.listed()["config.refused-value"].cases)
    said = {
        node.args[position].value
        for node in nodes()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        for position in [
            {"refusal": 0, "holds": 1, "matches": 1, "one_of": 1}.get(node.func.id, 99)
        ]
        if position < len(node.args) and isinstance(node.args[position], ast.Constant)
    }
    # Functions of these names elsewhere have messages and conditions of Kubernetes in that place.
    assert {text for text in said if re.fullmatch("[a-z0-9-]+", str(text))} - listed == set()
    assert listed - texts() == set()


def test_what_is_said_with_a_code_has_a_value_for_each_place() -> None:
    checked = 0
    for code, call in said():
        name, given = getattr(call.func, "id", ""), {one.arg: one.value for one in call.keywords}
        case = given.get("case", ast.Constant(""))
        if (
            name == "Finding"
            or {None, "problem"} & set(given)
            or not isinstance(case, ast.Constant)
        ):
            continue  # in other words, or with values and cases from elsewhere
        repaired = name not in ("blocked", "refused")
        text = " ".join(codes.said(code, str(case.value), repaired=repaired))
        places = {place.partition(".")[0] for place in codes.VALUE.findall(text)}
        assert places <= {*given, "path", "where"}, ast.unparse(call)
        checked += 1
    assert checked > 100


def test_a_repair_that_did_not_help_has_the_remedy_of_its_code() -> None:
    listed, other = (repair(code, step="s").remedy for code in ("driver.stream", "boot.units"))
    assert listed == "look at the package sources of the host: none has this version"
    assert other == "look on the host what changes it again, then run again"
