"""One comment on a pull request or one issue of a project, found again by its marker and edited in place.

GitHub's and GitLab's API.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import httpx

TRIES = 4
MOST_PAGES = 30
PAGE = 100
_LONGEST_WAIT_SECONDS = 60.0
_TIMEOUT = httpx.Timeout(20.0, connect=10.0)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w-]*/(?!\.{1,2}$)[\w.-]+")
_PASSING = {429, 500, 502, 503, 504}


class ForgeError(Exception):
    """The comment could not be made. The message says what was tried and what to do; never the token."""

    error_id = "review.forge"


class TooLongError(ForgeError):
    """The forge takes no comment of this length."""

    error_id = "review.too-long"


class Forge(StrEnum):
    """Which API."""

    GITHUB = "github"
    GITLAB = "gitlab"


@dataclass(frozen=True, slots=True)
class Target:
    """Where the comment goes, and with whose rights."""

    forge: Forge
    api: str
    """Address of the API, without a slash at its end."""
    project: str
    """`owner/name` on GitHub, the number of the project on GitLab."""
    number: int
    """Of the pull or merge request."""
    token: str = field(repr=False)

    @property
    def comments(self) -> str:
        """Address of the list of comments."""
        if self.forge is Forge.GITHUB:
            return f"{self.api}/repos/{self.project}/issues/{self.number}/comments"
        return f"{self.api}/projects/{self.project}/merge_requests/{self.number}/notes"

    def comment(self, number: int) -> str:
        """Address of one comment."""
        if self.forge is Forge.GITHUB:
            return f"{self.api}/repos/{self.project}/issues/comments/{number}"
        return f"{self.comments}/{number}"

    @property
    def headers(self) -> Mapping[str, str]:
        """What every request carries."""
        if self.forge is Forge.GITHUB:
            return {
                "Authorization": f"Bearer {self.token}",
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": "2022-11-28",
            }
        return {"PRIVATE-TOKEN": self.token}


def target(forge: Forge, env: Mapping[str, str], number: int | None = None) -> Target:
    """Where the pipeline around this command wants its comment.

    Args:
        forge: which API.
        env: the environment, as GitHub Actions and GitLab CI set it.
        number: of the pull or merge request; by default the one that the pipeline is about.

    Raises:
        ForgeError: something is missing; the message has all of it.
    """
    if forge is Forge.GITHUB:
        token, project = env.get("GITHUB_TOKEN", ""), env.get("GITHUB_REPOSITORY", "")
        api = env.get("GITHUB_API_URL", "https://api.github.com")
        number = number or _github_number(env)
        names = ("GITHUB_TOKEN", "GITHUB_REPOSITORY")
    else:
        token, project = env.get("GITLAB_TOKEN", ""), env.get("CI_PROJECT_ID", "")
        api = env.get("CI_API_V4_URL", "https://gitlab.com/api/v4")
        stated = env.get("CI_MERGE_REQUEST_IID", "")
        number = number or (int(stated) if stated.isdecimal() else None)
        names = ("GITLAB_TOKEN", "CI_PROJECT_ID")
    missing = [name for name, value in zip(names, (token, project), strict=True) if not value]
    if number is None:
        missing.append("the number of the pull request (--pull-request N)")
    if missing or number is None:
        raise ForgeError(f"to comment on {forge} there is missing: {', '.join(missing)}")
    if forge is Forge.GITHUB and not _REPOSITORY.fullmatch(project):
        raise ForgeError("GITHUB_REPOSITORY is not owner/name")
    if forge is Forge.GITLAB and not project.isdecimal():
        raise ForgeError("CI_PROJECT_ID is not a number")
    return Target(forge, api.rstrip("/"), project, number, token.strip())


def _github_number(env: Mapping[str, str]) -> int | None:
    found = re.fullmatch(r"refs/pull/(\d+)/\w+", env.get("GITHUB_REF", ""))
    if found:
        return int(found[1])
    try:
        event = json.loads(Path(env["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        number = event["pull_request"]["number"]
    except (KeyError, OSError, ValueError, TypeError):
        return None
    return number if isinstance(number, int) else None


class Comments:
    """The comments of one pull request."""

    def __init__(
        self,
        where: Target,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._where = where
        self._sleep = sleep
        # Redirects are not followed: the token is for this address alone.
        self._client = httpx.Client(
            headers=dict(where.headers),
            timeout=_TIMEOUT,
            transport=transport,
            follow_redirects=False,
        )

    def __enter__(self) -> Comments:
        """Keeps its connections until the end of the block."""
        return self

    def __exit__(self, *_exception: object) -> None:
        self._client.close()

    def put(self, body: str, marker: str) -> str:
        """Make the comment, or bring the one that carries the marker up to date; gives its address.

        Only a comment of our own account is edited: what others have written with our marker in it stays
        theirs, so that nobody can put words into the review later.

        Raises:
            TooLongError: the forge takes no comment of this length.
            ForgeError: it refuses, or does not answer.
        """
        author = self._author()
        for attempt in range(TRIES):
            known = self._find(marker, author)
            try:
                if known is None:
                    answer = self._once("POST", self._where.comments, {"body": body})
                elif str(known.get("body")).strip() == body.strip():
                    return _address(known, self._where.comments)
                else:
                    verb = "PATCH" if self._where.forge is Forge.GITHUB else "PUT"
                    address = self._where.comment(int(known["id"]))
                    answer = self._once(verb, address, {"body": body})
            except AgainError as again:
                # It may have been made all the same: it is looked for before it is made once more.
                self._wait(again, attempt)
            else:
                return _address(answer.json(), self._where.comments)
        raise AssertionError("unreachable")

    def _author(self) -> Callable[[Mapping[str, Any]], bool]:
        """Whether a comment is of our own account."""
        answer = self._get(f"{self._where.api}/user", refused_is_fine=True)
        me = answer.json() if answer is not None else {}
        if self._where.forge is Forge.GITLAB:
            return lambda comment: _of(comment, "author").get("id") == me.get("id", -1)
        if "login" in me:
            return lambda comment: _of(comment, "user").get("login") == me["login"]
        # The token of a workflow is that of an app, which has no user to ask for.
        return lambda comment: _of(comment, "user").get("login") == "github-actions[bot]"

    def _find(
        self, marker: str, ours: Callable[[Mapping[str, Any]], bool]
    ) -> Mapping[str, Any] | None:
        for comment in self._all():
            # At its end, because a name in another comment of ours may look like a marker.
            if str(comment.get("body")).rstrip().endswith(marker) and ours(comment):
                return comment
        return None

    def _all(self) -> Iterator[Mapping[str, Any]]:
        for page in range(1, MOST_PAGES + 1):
            answer = self._get(f"{self._where.comments}?per_page={PAGE}&page={page}")
            comments = answer.json() if answer is not None else []
            if not isinstance(comments, list):
                raise ForgeError(f"{self._where.forge} answers with something else than comments")
            yield from (comment for comment in comments if isinstance(comment, Mapping))
            if len(comments) < PAGE:
                return

    def _get(self, address: str, *, refused_is_fine: bool = False) -> httpx.Response | None:
        for attempt in range(TRIES):
            try:
                return self._once("GET", address)
            except AgainError as again:
                self._wait(again, attempt)
            except ForgeError:
                if refused_is_fine:
                    return None
                raise
        raise AssertionError("unreachable")

    def _once(
        self, verb: str, address: str, body: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        path = httpx.URL(address).path
        try:
            answer = self._client.request(verb, address, json=body)
        except httpx.TransportError as error:
            problem = (
                "does not answer in time"
                if isinstance(error, httpx.TimeoutException)
                else "cannot be reached"
            )
            raise AgainError(f"{self._where.forge} {problem} ({verb} {path})") from error
        if answer.is_success:
            try:
                answer.json()
            except ValueError as error:
                raise ForgeError(
                    f"{self._where.forge} answers {verb} {path} with something that is no JSON; is the "
                    "address of its API right?"
                ) from error
            return answer
        raise self._refusal(answer, f"{verb} {path}")

    def _refusal(self, answer: httpx.Response, tried: str) -> Exception:
        said = self._said(answer)
        status = f"{self._where.forge} answers {answer.status_code} to {tried}{said}"
        wait = _retry_after(answer)
        if answer.status_code in _PASSING or (answer.status_code == 403 and wait is not None):
            return AgainError(status, wait)
        if answer.status_code in (413, 422, 400) and "too long" in said.lower():
            return TooLongError(status)
        return ForgeError(f"{status}; {_REMEDIES.get(answer.status_code, 'see what it says')}")

    def _said(self, answer: httpx.Response) -> str:
        try:
            document = answer.json()
        except ValueError:
            return ""
        if not isinstance(document, Mapping):
            return ""
        text = str(document.get("message") or document.get("error") or "")
        if errors := document.get("errors"):
            text = f"{text}: {json.dumps(errors)}"
        text = text.replace(self._where.token, "[secret]")[:300]
        text = "".join(c if c.isprintable() else " " for c in text)
        return f": {text}" if text else ""

    def _wait(self, again: AgainError, attempt: int) -> None:
        seconds = again.seconds if again.seconds is not None else 2.0**attempt
        if attempt + 1 >= TRIES or seconds > _LONGEST_WAIT_SECONDS:
            raise ForgeError(
                f"{again}; tried {attempt + 1} times. Run the job again later"
            ) from again
        self._sleep(seconds)


class AgainError(Exception):
    """Worth another try, after so many seconds if the forge has said."""

    def __init__(self, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


_REMEDIES = {
    301: "the address has moved: is the API's address or the project's name an old one?",
    302: "the address has moved: is the API's address or the project's name an old one?",
    401: "the token is not valid, or no longer",
    403: "the token may not comment: give the job `pull-requests: write` (GitHub) or a token with the scope "
    "api (GitLab). Pipelines of forks get none, on purpose",
    404: "there is no such pull request, or the token may not see it",
    410: "comments are closed there",
    422: "is the pull request locked?",
}


def _retry_after(answer: httpx.Response) -> float | None:
    stated = answer.headers.get("retry-after", "")
    if stated.isdecimal():
        return float(stated)
    if answer.headers.get("x-ratelimit-remaining") == "0":
        reset = answer.headers.get("x-ratelimit-reset", "")
        return max(float(reset) - time.time(), 1.0) if reset.isdecimal() else None
    return None


def _of(comment: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = comment.get(key)
    return value if isinstance(value, Mapping) else {}


def issue_target(forge: Forge, env: Mapping[str, str]) -> Target:
    """The project of the pipeline around this command.

    Raises:
        ForgeError: something is missing; the message has all of it.
    """
    # Issues belong to the project; the number is that of a pull request, of which there is none.
    return target(forge, env, 1)


class Issues(Comments):
    """The open issues of one project that this account has made."""

    def __enter__(self) -> Issues:
        """Keeps its connections until the end of the block."""
        return self

    def keep(self, title: str, body: str, marker: str) -> str:
        """Open the issue, or bring the open one that carries the marker up to date; gives its address.

        Raises:
            TooLongError: the forge takes no text of this length.
            ForgeError: it refuses, or does not answer.
        """
        text = "body" if self._github else "description"
        for attempt in range(TRIES):
            known = self._open(marker)
            try:
                if known is None:
                    answer = self._once("POST", self._list, {"title": title, text: body})
                elif str(known.get(text)).strip() == body.strip():
                    return _address(known, self._list)
                else:
                    answer = self._once(self._verb, self._one(known), {"title": title, text: body})
            except AgainError as again:
                # It may have been made all the same: it is looked for before it is made once more.
                self._wait(again, attempt)
            else:
                return _address(answer.json(), self._list)
        raise AssertionError("unreachable")

    def close(self, marker: str) -> str | None:
        """Close the issue that carries the marker; its address, or None if none is open.

        Raises:
            ForgeError: the forge refuses, or does not answer.
        """
        change = {"state": "closed"} if self._github else {"state_event": "close"}
        for attempt in range(TRIES):
            known = self._open(marker)
            if known is None:
                return None
            try:
                answer = self._once(self._verb, self._one(known), change)
            except AgainError as again:
                self._wait(again, attempt)
            else:
                return _address(answer.json(), self._list)
        raise AssertionError("unreachable")

    @property
    def _github(self) -> bool:
        return self._where.forge is Forge.GITHUB

    @property
    def _verb(self) -> str:
        return "PATCH" if self._github else "PUT"

    @property
    def _list(self) -> str:
        if self._github:
            return f"{self._where.api}/repos/{self._where.project}/issues"
        return f"{self._where.api}/projects/{self._where.project}/issues"

    def _one(self, issue: Mapping[str, Any]) -> str:
        return f"{self._list}/{int(issue['number' if self._github else 'iid'])}"

    def _open(self, marker: str) -> Mapping[str, Any] | None:
        ours = self._author()
        for issue in self._issues():
            text = str(issue.get("body" if self._github else "description"))
            # Of our own account only: what others write with our marker in it stays theirs.
            if text.rstrip().endswith(marker) and ours(issue):
                return issue
        return None

    def _issues(self) -> Iterator[Mapping[str, Any]]:
        state = "open" if self._github else "opened"
        for page in range(1, MOST_PAGES + 1):
            answer = self._get(f"{self._list}?state={state}&per_page={PAGE}&page={page}")
            found = answer.json() if answer is not None else []
            if not isinstance(found, list):
                raise ForgeError(f"{self._where.forge} answers with something else than issues")
            # GitHub lists pull requests as issues too.
            yield from (
                one for one in found if isinstance(one, Mapping) and "pull_request" not in one
            )
            if len(found) < PAGE:
                return


def _address(issue: Any, fallback: str) -> str:
    if isinstance(issue, Mapping):
        return str(issue.get("html_url") or issue.get("web_url") or fallback)
    return fallback
