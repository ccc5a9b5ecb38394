"""What programs say when something fails is told with its cause: one message for every known error."""

import re
from pathlib import Path

import pytest

from gpuclusters.compat import known_errors
from tests.fixtures.tables import beside

TABLES = Path(known_errors.__file__).parent / "data" / "known_errors"
AREAS = sorted(path.stem for path in TABLES.glob("*.yaml"))

SAID = beside(__file__, "known_errors.yaml")
"""What programs print, by code of the known error."""
LOGS = beside(__file__, "known_errors_logs.yaml")


@pytest.mark.parametrize(("code", "text"), [(c, t) for c, texts in SAID.items() for t in texts])
def test_a_message_is_told_with_its_cause(code: str, text: str) -> None:
    found = known_errors.explain(code.partition(".")[0], f"a line before\n{text}\na line after")
    assert found is not None
    assert found.code == code
    assert found.cause
    assert found.remedy


def test_every_known_error_has_a_message() -> None:
    assert {error.code for area in AREAS for error in known_errors.known(area)} == set(SAID)


@pytest.mark.parametrize("area", AREAS)
def test_codes_are_of_their_area_and_each_pattern_stands_once(area: str) -> None:
    errors = known_errors.known(area)
    assert all(re.fullmatch(rf"{area}\.[a-z0-9-]+", error.code) for error in errors)
    assert len({error.says for error in errors}) == len({error.code for error in errors})
    assert len(errors) == len({error.code for error in errors})


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("text", LOGS["of another kind"])
def test_a_message_of_another_kind_is_left_alone(area: str, text: str) -> None:
    assert known_errors.explain(area, text) is None
    assert known_errors.advice(area, text) == ""


@pytest.mark.parametrize(
    ("code", "final"),
    [
        ("rke2.token-rejected", True),
        ("rke2.disk-full", True),
        ("rke2.server-unreachable", False),
        ("rke2.inotify-limits", False),
    ],
)
def test_waiting_helps_where_the_cause_can_pass(code: str, final: bool) -> None:
    assert {e.code: e.final for e in known_errors.known("rke2")}[code] is final


def test_the_newest_line_of_a_log_counts() -> None:
    log = "connect: connection refused\n401 Unauthorized\nall is well"
    found = known_errors.explain_newest("rke2", log)
    assert found is not None
    assert found.code == "rke2.token-rejected"


@pytest.mark.parametrize(("log", "asked", "words"), LOGS["last words"])
def test_last_words_are_those_that_say_what_failed(log: str, asked: list[int], words: str) -> None:
    assert known_errors.last_words(log, *asked) == words
