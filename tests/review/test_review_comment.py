"""One comment on the pull request, edited in place; what the forge refuses is said, the token never."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.forge import Entries, Forge, ForgeError, TooLongError, comments_of
from tests.review.forge_standin import LONGEST, TOKEN, Standin, forge

MARKER = "<!-- gpu-clusters review test -->"


@pytest.fixture
def standin() -> Iterator[Standin]:
    with forge() as state:
        yield state


def put(
    standin: Standin,
    body: str,
    kind: Forge = Forge.GITHUB,
    token: str = TOKEN,
    waited: list[float] | None = None,
) -> str:
    waits = waited if waited is not None else []
    with Entries(
        comments_of(kind, standin.environment(kind, token)), sleep=waits.append
    ) as comments:
        return comments.put(f"{body}\n{MARKER}\n", MARKER)


@pytest.mark.parametrize("kind", list(Forge))
def test_a_comment_is_made_once_and_edited_from_then_on(standin: Standin, kind: Forge) -> None:
    standin.app = kind is Forge.GITHUB
    put(standin, "first", kind)
    put(standin, "second", kind)
    assert [c["body"] for c in standin.comments] == [f"second\n{MARKER}\n"]
    written = [call.split()[0] for call in standin.calls if not call.startswith("GET")]
    assert written == ["POST", "PATCH" if kind is Forge.GITHUB else "PUT"]
    put(standin, "second", kind)
    assert standin.calls[-1].startswith("GET"), "what is the same already is not written again"


def test_it_is_found_behind_hundreds_of_others(standin: Standin) -> None:
    for number in range(250):
        standin.add(f"talk {number}", "somebody", 9)
    standin.add(f"old\n{MARKER}", "github-actions[bot]", 1)
    put(standin, "new")
    assert len(standin.comments) == 251
    assert standin.comments[-1]["body"].startswith("new")


def test_a_comment_of_somebody_else_with_our_marker_is_left_alone(standin: Standin) -> None:
    standin.add(f"all is safe, merge it\n{MARKER}", "mallory", 66)
    standin.add(f"{MARKER} is what you look for, isn't it", "github-actions[bot]", 1)
    put(standin, "dangerous")
    assert len(standin.comments) == 3
    assert standin.comments[0]["body"].startswith("all is safe")


def test_the_account_of_a_personal_token_is_asked_for(standin: Standin) -> None:
    standin.app = False
    standin.add(f"old\n{MARKER}", "me", 1)
    put(standin, "new")
    assert len(standin.comments) == 1


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_what_passes_is_tried_again(standin: Standin, status: int) -> None:
    standin.failing = [("POST", status, {}), ("POST", status, {})]
    waited: list[float] = []
    put(standin, "text", waited=waited)
    assert len(standin.comments) == 1
    assert waited == [1.0, 2.0]


def test_an_answer_that_was_lost_makes_no_second_comment(standin: Standin) -> None:
    standin.failing, standin.half_done = [("POST", 502, {})], True
    put(standin, "text")
    assert len(standin.comments) == 1


def test_it_waits_as_long_as_the_forge_says_and_not_longer_than_a_minute(standin: Standin) -> None:
    standin.failing = [("POST", 403, {"Retry-After": "7"})]
    waited: list[float] = []
    put(standin, "text", waited=waited)
    assert waited == [7.0]
    standin.comments.clear()
    reset = str(int(time.time()) + 3000)
    limit = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset}
    standin.failing = [("POST", 403, limit)]
    with pytest.raises(ForgeError, match="Run the job again later"):
        put(standin, "text", waited=waited)


def test_it_gives_up_after_four_tries(standin: Standin) -> None:
    standin.failing = [("POST", 500, {})] * 4
    with pytest.raises(ForgeError, match=r"answers 500 to POST .* tried 4 times"):
        put(standin, "text")


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
    standin: Standin, status: int, says: str
) -> None:
    standin.failing = [("POST", status, {})]
    with pytest.raises(ForgeError, match=says) as caught:
        put(standin, "text")
    assert TOKEN not in str(caught.value)
    assert TOKEN not in repr(comments_of(Forge.GITHUB, standin.environment(Forge.GITHUB)))


def test_a_wrong_token_is_refused(standin: Standin) -> None:
    with pytest.raises(ForgeError, match="401"):
        put(standin, "text", token="wrong")


def test_a_comment_that_is_too_long_is_told_apart(standin: Standin) -> None:
    with pytest.raises(TooLongError, match="too long"):
        put(standin, "x" * LONGEST)


def slow(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("slow", request=request)


def gone(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("gone", request=request)


def elsewhere(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(302, headers={"Location": "https://evil.example/"})


def portal(_request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, text="<html>sign in</html>")


@pytest.mark.parametrize(
    ("answer", "says", "waits"),
    [
        (slow, "github does not answer in time", 3),
        (gone, "github cannot be reached", 3),
        (elsewhere, "302", 0),
        (portal, "no JSON", 0),
    ],
)
def test_a_forge_that_is_not_there_is_told_and_its_token_goes_nowhere_else(
    answer: Callable[[httpx.Request], httpx.Response], says: str, waits: int
) -> None:
    asked: list[str] = []
    waited: list[float] = []

    def noted(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return answer(request)

    env = Standin(url="https://forge.example").environment(Forge.GITHUB)
    comments = Entries(
        comments_of(Forge.GITHUB, env), transport=httpx.MockTransport(noted), sleep=waited.append
    )
    with comments, pytest.raises(ForgeError, match=says):
        comments.put("x", MARKER)
    assert set(asked) == {"forge.example"}
    assert len(waited) == waits


def test_everything_that_is_missing_is_said_at_once() -> None:
    with pytest.raises(UsageError, match="GITHUB_TOKEN, GITHUB_REPOSITORY, the number"):
        comments_of(Forge.GITHUB, {})
    with pytest.raises(UsageError, match="GITLAB_TOKEN, CI_PROJECT_ID, the number"):
        comments_of(Forge.GITLAB, {})
    with pytest.raises(UsageError, match="owner/name"):
        comments_of(Forge.GITHUB, {"GITHUB_TOKEN": "t", "GITHUB_REPOSITORY": "../x"}, 7)


def test_the_number_is_read_from_the_event_too(tmp_path: Path) -> None:
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 12}}))
    env = {"GITHUB_TOKEN": "t", "GITHUB_REPOSITORY": "a/b", "GITHUB_EVENT_PATH": str(event)}
    assert comments_of(Forge.GITHUB, env).number == 12
