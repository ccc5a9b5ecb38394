"""Lists that the documents and the tests keep: what they name is there, and they leave nothing out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.docs import attacks
from tests.docs.pages import DOCS, ROOT
from tests.fixtures import skips

pytest_plugins = ["pytester"]

REQUIREMENTS = (DOCS / "requirements.md").read_text().splitlines()
ROWS = [line.strip("|").split(" | ") for line in REQUIREMENTS if " | `" in line]


def test_each_document_has_its_requirements() -> None:
    assert len(ROWS) >= 60
    assert {len(row) for row in ROWS} == {4}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip()[:40])
def test_a_requirement_is_done_and_shown_somewhere(row: list[str]) -> None:
    _, where, tests, shown = row
    assert all((ROOT / path).exists() for path in re.findall(r"`([^`]+)`", where))
    named = [path for path in re.findall(r"`([^`]+)`", tests) if "/" in path]
    assert all((ROOT / "tests" / path).exists() for path in named)
    assert named or "played" in shown
    assert "played" not in shown or re.search(r"played \([HGBRC]\)", shown)


def packages() -> set[str]:
    """Folders of code or charts below lab/, and those of the engine's provider stand-ins."""
    below = [*(ROOT / "lab").iterdir(), *(ROOT / "engine" / "stand_ins").iterdir()]
    found = [path for path in below if path.is_dir() and path.name != "__pycache__"]
    return {str(path.relative_to(ROOT)) for path in found if any(path.glob("*[!_]*"))}


def test_every_stand_in_has_a_row_that_says_since_when_it_is_compared_or_that_it_is_not() -> None:
    page = (DOCS / "stand-ins.md").read_text()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    rows = [row for row in cells if row and row[0].startswith(("`lab/", "`engine/"))]
    (real,) = re.findall(r"^No stand-ins.*: (.*)\.$", page, re.MULTILINE)
    named = {row[0].split("`")[1] for row in rows}
    assert packages() <= named | set(re.findall("`([^`]+)`", real))
    assert all((ROOT / name).exists() for name in named)
    for row in rows:
        assert [bool(cell) for cell in row] == [True] * 5, row[0]
        if row[0] != "`lab/charts`":
            assert re.search(r"\d{4}-\d\d-\d\d|\bnothing\b", row[3]), row[0]


def test_every_block_of_code_of_the_smallest_capability_stands_in_the_code() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    files = (ROOT / "gpuclusters/host" / f"{name}.py" for name in ("capability", "resource"))
    code = "".join(file.read_text() for file in files)
    blocks = re.findall(r"```python\n(.*?)(?:    …\n)?```", page, re.DOTALL)
    assert len(blocks) == 3
    assert [block for block in blocks if block not in code] == []


MARK = '@pytest.mark.attack(by="a tenant", tries="read | write", stopped_by="RBAC")\n'


@pytest.mark.parametrize(
    ("marks", "said"),
    [
        (MARK, "| a tenant | read \\| write | RBAC | `tests/test_a.py` |"),
        (f"@pytest.mark.xfail\n{MARK}", "tests/test_a.py:3: this attack succeeds"),
        ("@pytest.mark.attack(by=who)\n", "tests/test_a.py:1: write by, tries, stopped_by as"),
    ],
)
def test_an_attack_is_a_row_of_the_table_or_refused(
    marks: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attacks.attacks()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(f"{marks}def test_a(): ...\n")
    monkeypatch.setattr(attacks, "ROOT", tmp_path)
    try:
        shown = attacks.render(attacks.attacks())
    except ValueError as error:
        shown = str(error)
    assert said in shown


@pytest.mark.parametrize(
    ("node_id", "reason", "listed"),
    [
        ("tests/e2e/test_pulumi_cli.py::test_a", "Skipped: the Pulumi CLI is not on PATH", True),
        ("tests/e2e/test_pulumi_cli.py::test_a", "Skipped: no simulated hosts here", False),
        ("tests/e2e/test_kill.py::test_a", "Skipped: the Pulumi CLI is not on PATH", False),
        ("tests/lab/test_x.py::test_a", "Skipped: real nodes need Linux", True),
        ("tests/laboratory/test_x.py::test_a", "Skipped: real nodes need Linux", False),
    ],
)
def test_a_skip_is_allowed_by_file_and_reason(node_id: str, reason: str, *, listed: bool) -> None:
    assert skips.allowed(node_id, reason) is listed


def test_each_place_of_the_list_of_skips_exists() -> None:
    places = [row["tests"] for row in yaml.safe_load((skips.TESTS / "skips.yaml").read_text())]
    assert [place for place in places if not (skips.TESTS / place).exists()] == []


@pytest.mark.parametrize(("reason", "code"), [("", 0), ("no simulated hosts here", 1)])
def test_a_run_with_an_unlisted_skip_fails(
    pytester: pytest.Pytester, reason: str, code: int
) -> None:
    skip = f"    pytest.skip({reason!r})\n" if reason else ""
    pytester.makepyfile(f"import pytest\ndef test_a():\n    assert True\n{skip}")
    done = pytester.runpytest_subprocess("-p", "tests.fixtures.skips", "-p", "no:cacheprovider")
    assert done.ret == code
    if reason:
        done.stdout.fnmatch_lines(["*skips that tests/skips.yaml does not list*", f"*{reason}*"])
