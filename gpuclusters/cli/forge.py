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

from gpuclusters.cli.errors import RunError, UsageError

TRIES = 4
MOST_PAGES = 30
PAGE = 100
_LONGEST_WAIT_SECONDS = 60.0
_TIMEOUT = httpx.Timeout(20.0, connect=10.0)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w-]*/(?!\.{1,2}$)[\w.-]+")
_PASSING = {429, 500, 502, 503, 504}


class ForgeError(RunError):
    """The comment could not be made. The message says what was tried and what to do; never the token."""

    code = "review.forge"


class TooLongError(ForgeError):
    """The forge takes no comment of this length."""

    code = "review.too-long"


class Forge(StrEnum):
    """Which API."""

    GITHUB = "github"
    GITLAB = "gitlab"


@dataclass(frozen=True, slots=True)
class Target:
    """Comments of one pull request, or issues of a project, and with whose rights they are made."""

    forge: Forge
    api: str
    """Address of the API, without a slash at its end."""
    project: str
    """`owner/name` on GitHub, the number of the project on GitLab."""
    number: int
    """Of the pull or merge request; 0: issues of the project."""
    token: str = field(repr=False)

    @property
    def is_github(self) -> bool:
        """Whether it is GitHub's API."""
        return self.forge is Forge.GITHUB

    @property
    def issues(self) -> str:
        """Address of the project's issues."""
        return f"{self.api}/{'repos' if self.is_github else 'projects'}/{self.project}/issues"

    @property
    def entries(self) -> str:
        """Address of the list."""
        if not self.number:
            return self.issues
        if self.is_github:
            return f"{self.issues}/{self.number}/comments"
        return f"{self.api}/projects/{self.project}/merge_requests/{self.number}/notes"

    @property
    def filter(self) -> str:
        """What of the list is asked for: issues that are open."""
        return "" if self.number else f"state={'open' if self.is_github else 'opened'}&"

    @property
    def text(self) -> str:
        """The field with the text."""
        return "body" if self.number or self.is_github else "description"

    @property
    def closed(self) -> Mapping[str, str]:
        """What closes an issue."""
        return {"state": "closed"} if self.is_github else {"state_event": "close"}

    def entry(self, known: Mapping[str, Any]) -> str:
        """Address of one comment or issue."""
        if self.number:
            parent = f"{self.issues}/comments" if self.is_github else self.entries
            return f"{parent}/{int(known['id'])}"
        return f"{self.entries}/{int(known['number' if self.is_github else 'iid'])}"

    @property
    def headers(self) -> Mapping[str, str]:
        """What every request carries."""
        if not self.is_github:
            return {"PRIVATE-TOKEN": self.token}
        return {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }


def comments_of(forge: Forge, env: Mapping[str, str], number: int | None = None) -> Target:
    """The comments of a pull request: by default the one of the pipeline around this command."""
    if forge is Forge.GITHUB:
        number = number or _github_number(env)
    else:
        stated = env.get("CI_MERGE_REQUEST_IID", "")
        number = number or (int(stated) if stated.isdecimal() else None)
    missing = [] if number else ["the number of the pull request (--pull-request N)"]
    return _target(forge, env, number or 0, missing)


def issues_of(forge: Forge, env: Mapping[str, str]) -> Target:
    """The issues of the project of the pipeline around this command."""
    return _target(forge, env, 0, [])


def _target(forge: Forge, env: Mapping[str, str], number: int, missing: list[str]) -> Target:
    if forge is Forge.GITHUB:
        names = ("GITHUB_TOKEN", "GITHUB_REPOSITORY")
        api = env.get("GITHUB_API_URL", "https://api.github.com")
    else:
        names = ("GITLAB_TOKEN", "CI_PROJECT_ID")
        api = env.get("CI_API_V4_URL", "https://gitlab.com/api/v4")
    missing = [name for name in names if not env.get(name)] + missing
    if missing:
        raise UsageError(
            f"to write to {forge} there is missing: {', '.join(missing)}", ForgeError.code
        )
    token, project = (env[name] for name in names)
    if forge is Forge.GITHUB and not _REPOSITORY.fullmatch(project):
        raise UsageError("GITHUB_REPOSITORY is not owner/name", ForgeError.code)
    if forge is Forge.GITLAB and not project.isdecimal():
        raise UsageError("CI_PROJECT_ID is not a number", ForgeError.code)
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


class Entries:
    """The comments or issues of a target that carry a marker and are of our own account.

    What others have written with our marker in it stays theirs, so that nobody can put words into it later.
    """

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

    def __enter__(self) -> Entries:
        """Keeps its connections until the end of the block."""
        return self

    def __exit__(self, *_exception: object) -> None:
        self._client.close()

    def put(self, body: str, marker: str, title: str = "") -> str:
        """Make the entry, or bring the one that carries the marker up to date; gives its address.

        Raises:
            TooLongError: the forge takes no text of this length.
            ForgeError: it refuses, or does not answer.
        """
        content = {self._where.text: body, **({"title": title} if title else {})}

        def act(known: Mapping[str, Any] | None) -> Any:
            if known is None:
                return self._once("POST", self._where.entries, content).json()
            if str(known.get(self._where.text)).strip() == body.strip():
                return known
            return self._change(known, content)

        return str(self._again(marker, act))

    def close(self, marker: str) -> str | None:
        """Close the issue that carries the marker; its address, or None if none is open."""

        def act(known: Mapping[str, Any] | None) -> Any:
            return None if known is None else self._change(known, self._where.closed)

        return self._again(marker, act)

    def _again(self, marker: str, act: Callable[[Mapping[str, Any] | None], Any]) -> str | None:
        """Find it and act until that is done; found anew each time, as it may have been made all the same."""
        ours = self._author()
        for attempt in range(TRIES):
            known = self._find(marker, ours)
            try:
                found = act(known)
            except AgainError as again:
                self._wait(again, attempt)
                continue
            if not isinstance(found, Mapping):
                return None if found is None else self._where.entries
            return str(found.get("html_url") or found.get("web_url") or self._where.entries)
        raise AssertionError("unreachable")

    def _change(self, known: Mapping[str, Any], change: Mapping[str, str]) -> Any:
        verb = "PATCH" if self._where.is_github else "PUT"
        return self._once(verb, self._where.entry(known), change).json()

    def _author(self) -> Callable[[Mapping[str, Any]], bool]:
        """Whether a comment is of our own account."""
        answer = self._get(f"{self._where.api}/user", refused_is_fine=True)
        me = answer.json() if answer is not None else {}
        if not self._where.is_github:
            return lambda comment: _of(comment, "author").get("id") == me.get("id", -1)
        if "login" in me:
            return lambda comment: _of(comment, "user").get("login") == me["login"]
        # The token of a workflow is that of an app, which has no user to ask for.
        return lambda comment: _of(comment, "user").get("login") == "github-actions[bot]"

    def _find(
        self, marker: str, ours: Callable[[Mapping[str, Any]], bool]
    ) -> Mapping[str, Any] | None:
        for entry in self._all():
            # At its end, because a name in another entry of ours may look like a marker.
            if str(entry.get(self._where.text)).rstrip().endswith(marker) and ours(entry):
                return entry
        return None

    def _all(self) -> Iterator[Mapping[str, Any]]:
        where = self._where
        for page in range(1, MOST_PAGES + 1):
            address = f"{where.entries}?{where.filter}per_page={PAGE}&page={page}"
            answer = self._get(address)
            found = answer.json() if answer is not None else []
            if not isinstance(found, list):
                raise ForgeError(f"{where.forge} answers with something else than a list")
            # GitHub lists pull requests as issues too.
            yield from (e for e in found if isinstance(e, Mapping) and "pull_request" not in e)
            if len(found) < PAGE:
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
            late = isinstance(error, httpx.TimeoutException)
            problem = "does not answer in time" if late else "cannot be reached"
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
