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


SAYING = {"Finding": 0, "blocked": 0, "repair": 0, "refused": 1}
SAYING |= dict.fromkeys(("_repair", "_join", "_settle", "_late", "anew"), 0)
"""Who says a code, and which argument it is; some are `repair` for one step."""
REFUSING = {"refusal": 0, "holds": 1, "matches": 1, "one_of": 1}


@cache
def sources() -> tuple[str, ...]:
    return tuple(file.read_text() for one in FOLDERS for file in (ROOT / one).rglob("*.py"))


@cache
def texts() -> frozenset[str]:
    return frozenset(re.findall(r'"([a-z0-9.-]+)(?=")', "\n".join(sources())))


@cache
def told(saying: tuple[tuple[str, int], ...]) -> list[tuple[str, ast.Call]]:
    """Each text that stands in a call at the place for what is said, with the call."""
    places, found = dict(saying), []
    named = re.compile(rf"\b({'|'.join(places)})\(")
    # To parse all of it takes seconds of each worker.
    for tree in (ast.parse(text) for text in sources() if named.search(text)):
        for one in ast.walk(tree):
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Name):
                (text, *_) = (*one.args[places.get(one.func.id, 99) :], None)
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    found.append((text.value, one))
    return found


@pytest.mark.parametrize("code", sorted(codes.listed()))
def test_a_code_is_said_somewhere_and_explained_in_sentences(code: str) -> None:
    assert CODE.fullmatch(code)
    area, _, fault = code.partition(".")
    assert {code, fault} & texts() or fault == "missing", f"listed in {area}.yaml, and said nowhere"
    entry = codes.listed()[code]
    assert entry.means.endswith((".", "!", "`")), entry.means
    assert entry.do.endswith((".", "!", "`")), entry.do
    assert not entry.like or entry.like in codes.listed()
    assert all(case.problem or case.do for case in entry.cases.values())


def said() -> list[tuple[str, ast.Call]]:
    return [(code, one) for code, one in told((*SAYING.items(),)) if CODE.fullmatch(code)]


def test_every_code_that_is_said_is_listed() -> None:
    dotted = {code for code, _ in said()}
    assert dotted
    assert dotted - set(codes.listed()) == set()


def test_every_refusal_of_a_value_is_listed_and_every_listed_one_is_said() -> None:
    listed = set(codes.listed()["config.refused-value"].cases)
    # Functions of these names elsewhere have messages and conditions of Kubernetes in that place.
    refused = {text for text, _ in told((*REFUSING.items(),)) if re.fullmatch("[a-z0-9-]+", text)}
    assert refused
    assert refused - listed == set()
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
