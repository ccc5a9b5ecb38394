"""One comment or issue of ours, edited in place; what the forge refuses is said, the token never."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.forge import (
    Entries,
    Forge,
    ForgeError,
    TooLongError,
    comments_of,
    issues_of,
)
from gpuclusters.review.text import marker
from tests.review.forge_standin import APP, LONGEST, TOKEN, Standin, forge

MARK = marker("prod", "drift")


@pytest.fixture
def standin() -> Iterator[Standin]:
    with forge() as state:
        yield state


@pytest.fixture
def waited() -> list[float]:
    """For how long each time."""
    return []


Put = Callable[..., str]


@pytest.fixture
def put(standin: Standin, waited: list[float]) -> Put:
    """Writes our comment."""

    def put(body: str, kind: Forge = Forge.GITHUB, token: str = TOKEN) -> str:
        where = comments_of(kind, standin.environment(kind, token))
        with Entries(where, sleep=waited.append) as comments:
            return comments.put(f"{body}\n{MARK}\n", MARK)

    return put


@pytest.mark.parametrize("kind", list(Forge))
def test_a_comment_is_made_once_and_edited_from_then_on(
    standin: Standin, put: Put, kind: Forge
) -> None:
    standin.app = kind is Forge.GITHUB
    put("first", kind)
    put("second", kind)
    assert [c["body"] for c in standin.comments] == [f"second\n{MARK}\n"]
    written = [call.split()[0] for call in standin.changes]
    assert written == ["POST", "PATCH" if kind is Forge.GITHUB else "PUT"]
    put("second", kind)
    assert standin.calls[-1].startswith("GET"), "what is the same already is not written again"


@pytest.mark.parametrize(
    ("there", "app", "made"),
    [
        # Behind hundreds of others.
        ([*([("talk", "somebody", 9)] * 250), (f"old\n{MARK}", APP, 1)], True, 0),
        # Of an account that has to be asked for.
        ([(f"old\n{MARK}", "me", 1)], False, 0),
        # Of somebody else, with our marker; of our account, about our marker.
        ([(f"all is safe\n{MARK}", "mallory", 66), (f"{MARK} is what?", APP, 1)], True, 1),
    ],
    ids=["hundreds", "personal", "others"],
)
def test_our_comment_is_found_and_those_of_others_are_left_alone(
    standin: Standin, put: Put, there: list[tuple[str, str, int]], *, app: bool, made: int
) -> None:
    standin.app = app
    before = [standin.add(*one)["body"] for one in there]
    put("new")
    *others, ours = [one["body"] for one in standin.comments]
    assert others == before[: len(before) - 1 + made]
    assert ours == f"new\n{MARK}\n"


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_what_passes_is_tried_again(
    standin: Standin, put: Put, waited: list[float], status: int
) -> None:
    standin.failing = [("POST", status, {}), ("POST", status, {})]
    put("text")
    assert len(standin.comments) == 1
    assert waited == [1.0, 2.0]


def test_an_answer_that_was_lost_makes_no_second_comment(standin: Standin, put: Put) -> None:
    standin.failing, standin.half_done = [("POST", 502, {})], True
    put("text")
    assert len(standin.comments) == 1


def test_it_waits_as_long_as_the_forge_says_but_gives_up_after_a_minute_or_four_tries(
    standin: Standin, put: Put, waited: list[float]
) -> None:
    standin.failing = [("POST", 403, {"Retry-After": "7"})]
    put("text")
    assert waited == [7.0]
    standin.comments.clear()
    limit = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 3000)}
    standin.failing = [("POST", 403, limit)]
    with pytest.raises(ForgeError, match="Run the job again later"):
        put("text")
    assert waited == [7.0]
    standin.failing = [("POST", 500, {})] * 4
    with pytest.raises(ForgeError, match=r"answers 500 to POST .* tried 4 times"):
        put("text")


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (403, "pull-requests: write"),
        (404, "no such pull request"),
        (410, "closed"),
        (422, "locked"),
        (401, "not valid"),
    ],
)
def test_a_refusal_says_what_to_do_and_never_the_token(
    standin: Standin, put: Put, status: int, says: str
) -> None:
    standin.failing = [("POST", status, {})]
    with pytest.raises(ForgeError, match=says) as caught:
        put("text")
    assert TOKEN not in str(caught.value)
    assert TOKEN not in repr(comments_of(Forge.GITHUB, standin.environment(Forge.GITHUB)))


def test_a_wrong_token_is_refused_and_what_is_too_long_is_told_apart(put: Put) -> None:
    with pytest.raises(ForgeError, match="401"):
        put("text", token="wrong")
    with pytest.raises(TooLongError, match="too long"):
        put("x" * LONGEST)


@pytest.mark.parametrize(
    ("answer", "says", "waits"),
    [
        (httpx.ReadTimeout("slow"), "github does not answer in time", 3),
        (httpx.ConnectError("gone"), "github cannot be reached", 3),
        (httpx.Response(302, headers={"Location": "https://evil.example/"}), "302", 0),
        (httpx.Response(200, text="<html>sign in</html>"), "no JSON", 0),
    ],
)
def test_a_forge_that_is_not_there_is_told_and_its_token_goes_nowhere_else(
    answer: httpx.Response | Exception, says: str, waits: int, waited: list[float]
) -> None:
    asked: list[str] = []

    def noted(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        if isinstance(answer, Exception):
            raise answer
        return answer

    where = comments_of(Forge.GITHUB, Standin("https://forge.example").environment(Forge.GITHUB))
    comments = Entries(where, transport=httpx.MockTransport(noted), sleep=waited.append)
    with comments, pytest.raises(ForgeError, match=says):
        comments.put("x", MARK)
    assert set(asked) == {"forge.example"}
    assert len(waited) == waits


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


@pytest.mark.parametrize(
    ("of", "kind", "env", "says"),
    [
        (comments_of, Forge.GITHUB, {}, "GITHUB_TOKEN, GITHUB_REPOSITORY, the number"),
        (comments_of, Forge.GITLAB, {}, "GITLAB_TOKEN, CI_PROJECT_ID, the number"),
        (issues_of, Forge.GITHUB, {}, "GITHUB_TOKEN, GITHUB_REPOSITORY"),
        (issues_of, Forge.GITHUB, {"GITHUB_TOKEN": "t", "GITHUB_REPOSITORY": "../x"}, "owner/name"),
    ],
)
def test_everything_that_is_missing_is_said_at_once(
    of: Callable[..., Any], kind: Forge, env: dict[str, str], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        of(kind, env)


def test_the_number_is_read_from_the_event_too(tmp_path: Path) -> None:
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 12}}))
    env = {"GITHUB_TOKEN": "t", "GITHUB_REPOSITORY": "a/b", "GITHUB_EVENT_PATH": str(event)}
    assert comments_of(Forge.GITHUB, env).number == 12
