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
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx

from gpuclusters.cli.errors import RunError, UsageError

TRIES = 4
MOST_PAGES = 30
PAGE = 100
_LONGEST_WAIT_SECONDS = 60.0
_TIMEOUT = httpx.Timeout(20.0, connect=10.0)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w-]*/(?!\.{1,2}$)[\w.-]+")
_PASSING = {429, 500, 502, 503, 504}
_MOVED = "the address has moved: is the API's address or the project's name an old one?"
_REMEDIES = {
    301: _MOVED,
    302: _MOVED,
    401: "the token is not valid, or no longer",
    403: "the token may not comment: give the job `pull-requests: write` (GitHub) or a token with the scope "
    "api (GitLab). Pipelines of forks get none, on purpose",
    404: "there is no such pull request, or the token may not see it",
    410: "comments are closed there",
    422: "is the pull request locked?",
}
Entry = Mapping[str, Any]
T = TypeVar("T")


class ForgeError(RunError):
    """The comment could not be made. The message says what was tried and what to do; never the token."""

    code = "review.forge"


class TooLongError(ForgeError):
    """The forge takes no comment of this length."""

    code = "review.too-long"


class _AgainError(Exception):
    """Worth another try, after so many seconds if the forge has said."""

    def __init__(self, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


class Forge(StrEnum):
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
        return self.forge is Forge.GITHUB

    @property
    def entries(self) -> str:
        parent = f"{self.api}/{'repos' if self.is_github else 'projects'}/{self.project}"
        if not self.number:
            return f"{parent}/issues"
        if self.is_github:
            return f"{parent}/issues/{self.number}/comments"
        return f"{parent}/merge_requests/{self.number}/notes"

    def page(self, number: int) -> str:
        """Address of one page of the list; of issues only those that are open."""
        state = "" if self.number else f"state={'open' if self.is_github else 'opened'}&"
        return f"{self.entries}?{state}per_page={PAGE}&page={number}"

    def entry(self, known: Entry) -> str:
        """Address of one comment or issue."""
        if not self.number:
            return f"{self.entries}/{int(known['number' if self.is_github else 'iid'])}"
        # GitHub has comments beside the issues and pull requests that they are about.
        parent = self.entries.replace(f"/{self.number}/comments", "/comments")
        return f"{parent}/{int(known['id'])}"

    @property
    def text(self) -> str:
        return "body" if self.number or self.is_github else "description"

    @property
    def headers(self) -> dict[str, str]:
        if not self.is_github:
            return {"PRIVATE-TOKEN": self.token}
        return {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }


def comments_of(forge: Forge, env: Mapping[str, str], number: int | None = None) -> Target:
    """The comments of a pull request: by default the one of the pipeline around this command."""
    if number is None and forge is Forge.GITHUB:
        number = _github_number(env)
    elif number is None and (stated := env.get("CI_MERGE_REQUEST_IID", "")).isdecimal():
        number = int(stated)
    missing = [] if number else ["the number of the pull request (--pull-request N)"]
    return _target(forge, env, number or 0, missing)


def issues_of(forge: Forge, env: Mapping[str, str]) -> Target:
    """The issues of the project of the pipeline around this command."""
    return _target(forge, env, 0, [])


def _target(forge: Forge, env: Mapping[str, str], number: int, missing: list[str]) -> Target:
    if forge is Forge.GITHUB:
        names, form = ("GITHUB_TOKEN", "GITHUB_REPOSITORY"), "owner/name"
        api = env.get("GITHUB_API_URL", "https://api.github.com")
    else:
        names, form = ("GITLAB_TOKEN", "CI_PROJECT_ID"), "a number"
        api = env.get("CI_API_V4_URL", "https://gitlab.com/api/v4")
    missing = [name for name in names if not env.get(name)] + missing
    if missing:
        said = f"to write to {forge} there is missing: {', '.join(missing)}"
        raise UsageError(said, ForgeError.code)
    token, project = (env[name] for name in names)
    if not (_REPOSITORY.fullmatch(project) if forge is Forge.GITHUB else project.isdecimal()):
        raise UsageError(f"{names[1]} is not {form}", ForgeError.code)
    return Target(forge, api.rstrip("/"), project, number, token.strip())


def _github_number(env: Mapping[str, str]) -> int | None:
    if found := re.fullmatch(r"refs/pull/(\d+)/\w+", env.get("GITHUB_REF", "")):
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
            headers=where.headers, timeout=_TIMEOUT, transport=transport, follow_redirects=False
        )

    def __enter__(self) -> Entries:
        """Keeps its connections until the end of the block."""
        return self

    def __exit__(self, *_exception: object) -> None:
        self._client.close()

    def put(self, body: str, marker: str, title: str = "") -> str:
        """Make the entry, or bring the one that carries the marker up to date; gives its address."""
        content = {self._where.text: body, **({"title": title} if title else {})}

        def act(known: Entry | None) -> Any:
            if known is None:
                return self._once("POST", self._where.entries, content)
            same = str(known.get(self._where.text)).strip() == body.strip()
            return known if same else self._change(known, content)

        return str(self._on(marker, act))

    def close(self, marker: str) -> str | None:
        """Close the issue that carries the marker; its address, or None if none is open."""
        closed = {"state": "closed"} if self._where.is_github else {"state_event": "close"}
        return self._on(marker, lambda known: known and self._change(known, closed))

    def _on(self, marker: str, act: Callable[[Entry | None], Any]) -> str | None:
        """Act on the entry until that is done; found anew each time, as it may have been made after all."""
        is_ours = self._author()

        def found() -> Any:
            ours = (e for e in self._all() if is_ours(e))
            # At its end, because a name in another entry of ours may look like a marker.
            texts = ((str(e.get(self._where.text)).rstrip(), e) for e in ours)
            return next((e for text, e in texts if text.endswith(marker)), None)

        done = self._tried(lambda: act(found()))
        if not isinstance(done, Mapping):
            return None if done is None else self._where.entries
        return str(done.get("html_url") or done.get("web_url") or self._where.entries)

    def _change(self, known: Entry, change: Mapping[str, str]) -> Any:
        verb = "PATCH" if self._where.is_github else "PUT"
        return self._once(verb, self._where.entry(known), change)

    def _author(self) -> Callable[[Entry], bool]:
        def account() -> Any:
            try:
                return self._once("GET", f"{self._where.api}/user")
            except ForgeError:
                return {}

        me = self._tried(account)
        # The token of a workflow of GitHub is that of an app, which has no user to ask for.
        github = ("user", "login", "github-actions[bot]")
        key, name, otherwise = github if self._where.is_github else ("author", "id", -1)
        own = me.get(name, otherwise) if isinstance(me, Mapping) else otherwise
        return lambda entry: isinstance(entry.get(key), Mapping) and entry[key].get(name) == own

    def _all(self) -> Iterator[Entry]:
        for page in range(1, MOST_PAGES + 1):
            found = self._tried(partial(self._once, "GET", self._where.page(page)))
            if not isinstance(found, list):
                raise ForgeError(f"{self._where.forge} answers with something else than a list")
            # GitHub lists pull requests as issues too.
            yield from (e for e in found if isinstance(e, Mapping) and "pull_request" not in e)
            if len(found) < PAGE:
                return

    def _tried(self, act: Callable[[], T]) -> T:
        """The result of an act, which is tried again as long as that may help."""
        attempt = 0
        while True:
            try:
                return act()
            except _AgainError as again:
                seconds = 2.0**attempt if again.seconds is None else again.seconds
                attempt += 1
                if attempt >= TRIES or seconds > _LONGEST_WAIT_SECONDS:
                    said = f"{again}; tried {attempt} times. Run the job again later"
                    raise ForgeError(said) from again
            self._sleep(seconds)

    def _once(self, verb: str, address: str, body: Entry | None = None) -> Any:
        forge, tried = self._where.forge, f"{verb} {httpx.URL(address).path}"
        try:
            answer = self._client.request(verb, address, json=body)
        except httpx.TransportError as error:
            late = isinstance(error, httpx.TimeoutException)
            problem = "does not answer in time" if late else "cannot be reached"
            raise _AgainError(f"{forge} {problem} ({tried})") from error
        if not answer.is_success:
            raise self._refusal(answer, tried)
        try:
            return answer.json()
        except ValueError as error:
            said = f"{forge} answers {tried} with something that is no JSON"
            raise ForgeError(f"{said}; is the address of its API right?") from error

    def _refusal(self, answer: httpx.Response, tried: str) -> Exception:
        said, code = self._said(answer), answer.status_code
        status = f"{self._where.forge} answers {code} to {tried}{said}"
        wait = _retry_after(answer)
        if code in _PASSING or (code == 403 and wait is not None):
            return _AgainError(status, wait)
        if code in (413, 422, 400) and "too long" in said.lower():
            return TooLongError(status)
        return ForgeError(f"{status}; {_REMEDIES.get(code, 'see what it says')}")

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


def _retry_after(answer: httpx.Response) -> float | None:
    stated = answer.headers.get("retry-after", "")
    if stated.isdecimal():
        return float(stated)
    reset = answer.headers.get("x-ratelimit-reset", "")
    if answer.headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
        return max(float(reset) - time.time(), 1.0)
    return None
