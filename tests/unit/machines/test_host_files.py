"""Files on a host: how they differ, and what is never overwritten."""

from typing import Any

import pytest

from gpuclusters.host.capability import findings
from gpuclusters.host.model import HostFileSpec, check_path
from tests.fixtures.made_up import CONNECTION, live_file
from tests.fixtures.tables import beside

CASES = beside(__file__, "host_files.yaml")
PATH = "/etc/x.conf"


def file(**changes: Any) -> HostFileSpec:
    return HostFileSpec.model_validate(
        {"connection": CONNECTION, "path": PATH, "content": "a\nb\n"} | changes
    )


@pytest.mark.parametrize(("there", "written", "code", "level"), CASES["file"])
def test_a_file_that_we_did_not_write_is_never_overwritten(
    there: dict[str, Any] | None, written: bool, code: str, level: str
) -> None:
    (one,) = findings(file(), there and live_file(**there), written=written)
    assert (one.code, one.level, one.path) == (code, level, (PATH,))
    assert "theirs" not in str(one), "the content may be secret"
    assert [*findings(file(), live_file("a\nb\n"), written=False)] == []


def test_where_a_file_begins_to_differ_is_told() -> None:
    (one,) = findings(file(), live_file("a\n"), written=True)
    assert "from line 2 on (2 bytes instead of 4" in one.problem


@pytest.mark.parametrize("path", ["a", "./a", "/a/../b", "/a/./b", "/a/", "//a", "/a\n", "/", ""])
def test_a_path_that_is_not_where_it_says_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        check_path(path)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [*CASES["inputs"], ("content", "x" * (512 * 1024 + 1), "content")],
    ids=lambda text: repr(text)[:30],
)
def test_inputs_of_a_file_that_cannot_work_are_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        file(**{name: value})


def test_a_mode_may_have_three_digits() -> None:
    assert file(mode="640").mode == "0640"
