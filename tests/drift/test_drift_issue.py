"""One issue for each stack: opened, edited, closed, found by its marker, and only our own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.forge import Entries, Forge, issues_of
from gpuclusters.review.text import marker
from tests.review.forge_standin import Standin, forge

MARK = marker("prod", "drift")


@pytest.fixture
def standin() -> Iterator[Standin]:
    with forge() as made:
        yield made


def issues(standin: Standin, which: Forge = Forge.GITHUB) -> Entries:
    standin.app = which is Forge.GITHUB
    return Entries(issues_of(which, standin.environment(which)), sleep=lambda _: None)


@pytest.mark.parametrize(("which", "verb"), [(Forge.GITHUB, "PATCH"), (Forge.GITLAB, "PUT")])
def test_an_issue_is_opened_once_edited_and_closed(
    standin: Standin, which: Forge, verb: str
) -> None:
    with issues(standin, which) as ours:
        assert ours.close(MARK) is None
        first = ours.put(f"a\n\n{MARK}", MARK, "Drift: stack prod")
        assert ours.put(f"a\n\n{MARK}", MARK, "Drift: stack prod") == first
        assert ours.put(f"b\n\n{MARK}", MARK, "Drift: stack prod") == first
        assert ours.close(MARK) == first
        assert ours.close(MARK) is None
        assert ours.put(f"c\n\n{MARK}", MARK, "Drift: stack prod") != first
    assert [call.split()[0] for call in standin.changes] == ["POST", verb, verb, "POST"]
    assert [issue["state"] for issue in standin.issues] == ["closed", "open"]


def test_issues_of_others_and_of_other_stacks_stay_theirs(standin: Standin) -> None:
    standin.open("spoof", f"x {MARK}", login="mallory")
    standin.open("another stack", f"x\n{marker('staging', 'drift')}")
    standin.open("quotes it", f"{MARK}\nand goes on")
    with issues(standin) as ours:
        ours.put(f"a\n{MARK}", MARK, "Drift: stack prod")
        ours.close(MARK)
    assert [issue["state"] for issue in standin.issues] == ["open", "open", "open", "closed"]
    assert standin.issues[0]["body"] == f"x {MARK}"


def test_what_is_missing_is_said_at_once() -> None:
    with pytest.raises(UsageError, match="GITHUB_TOKEN, GITHUB_REPOSITORY"):
        issues_of(Forge.GITHUB, {})
