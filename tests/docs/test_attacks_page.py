"""The site lists every attack that a test makes, and none succeeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import attacks


def test_attacks_are_known_and_none_succeeds() -> None:
    assert attacks.attacks()


MARK = '@pytest.mark.attack(by="a tenant", tries="read | write", stopped_by="RBAC")\n'


@pytest.mark.parametrize(
    ("marks", "said"),
    [
        (MARK, "| a tenant | read \\| write | RBAC | `tests/test_a.py` |"),
        (f"@pytest.mark.xfail\n{MARK}", "tests/test_a.py:3: this attack succeeds"),
        ("@pytest.mark.attack(by=who)\n", "tests/test_a.py:1: write by, tries, stopped_by as"),
    ],
)
def test_a_marker_is_a_row_of_the_table_or_refused(
    marks: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(f"{marks}def test_a(): ...\n")
    monkeypatch.setattr(attacks, "ROOT", tmp_path)
    try:
        shown = attacks.render(attacks.attacks())
    except ValueError as error:
        shown = str(error)
    assert said in shown
