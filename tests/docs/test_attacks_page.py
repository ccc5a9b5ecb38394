"""The site lists every attack that a test makes, and none is open."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import attacks


def test_no_attack_is_open() -> None:
    found = attacks.attacks()
    assert found
    assert [attack for attack in found if attack.is_open] == []


MARK = '@pytest.mark.attack(by="a tenant", tries="read | write", stopped_by="RBAC")\n'


@pytest.mark.parametrize(
    ("source", "row"),
    [
        (f"{MARK}def test_a(): ...\n", "| a tenant | read \\| write | RBAC | `tests/test_a.py` |"),
        (
            f"@pytest.mark.xfail\n{MARK}def test_a(): ...\n",
            "| **open** a tenant | read \\| write | RBAC | `tests/test_a.py` |",
        ),
    ],
)
def test_a_test_that_is_expected_to_fail_is_an_open_attack(
    source: str, row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(source)
    monkeypatch.setattr(attacks, "ROOT", tmp_path)
    assert row in attacks.render(attacks.attacks()).splitlines()


def test_a_marker_without_literal_fields_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("@pytest.mark.attack(by=who)\ndef test(): ...\n")
    monkeypatch.setattr(attacks, "ROOT", tmp_path)
    with pytest.raises(ValueError, match=r"tests/test_a\.py:1: write by, tries, stopped_by as"):
        attacks.attacks()
