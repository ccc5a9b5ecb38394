"""Skips are a list: what it does not have fails the run."""

from __future__ import annotations

import pytest
import yaml

from tests.fixtures import skips

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(
    ("node_id", "reason", "listed"),
    [
        ("tests/e2e/test_pulumi_cli.py::test_a", "Skipped: the Pulumi CLI is not on PATH", True),
        ("tests/e2e/test_pulumi_cli.py::test_a", "Skipped: no simulated hosts here", False),
        ("tests/e2e/test_dev_stack.py::test_a", "Skipped: the Pulumi CLI is not on PATH", False),
        ("tests/lab/test_x.py::test_a", "Skipped: real nodes need Linux", True),
        ("tests/laboratory/test_x.py::test_a", "Skipped: real nodes need Linux", False),
    ],
)
def test_a_skip_is_allowed_by_file_and_reason(node_id: str, reason: str, *, listed: bool) -> None:
    assert skips.allowed(node_id, reason) is listed


def test_each_place_of_the_list_exists() -> None:
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
