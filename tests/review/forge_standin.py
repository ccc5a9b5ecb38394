"""A stand-in for the part of GitHub's and GitLab's API that comments and issues need, on loopback.

It keeps both, checks tokens, pages by a hundred, lists a pull request among GitHub's issues, and can be told
to fail. It refuses what the real ones refuse: too long a text, a wrong token, another project.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gpuclusters.cli.forge import Forge
from tests.fixtures.loopback import Answering, serving

TOKEN = "made-up-token-0123456789"
LONGEST = 65_536
COMMENTS = re.compile(r"/repos/acme/fleet/issues/7/comments|/projects/42/merge_requests/7/notes")
COMMENT = re.compile(
    r"(?:/repos/acme/fleet/issues/comments|/projects/42/merge_requests/7/notes)/(\d+)"
)
ISSUES = re.compile(r"/repos/acme/fleet/issues|/projects/42/issues")
ISSUE = re.compile(r"(?:/repos/acme/fleet|/projects/42)/issues/(\d+)")
APP = "github-actions[bot]"


@dataclass
class Standin:
    """What it knows and what was asked of it."""

    url: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    issues: list[dict[str, Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    app: bool = True
    """Whether the token is an app's, as in a workflow: `/user` is refused."""
    failing: list[tuple[str, int, dict[str, str]]] = field(default_factory=list)
    """Verb, status and headers of answers to come, instead of doing anything."""
    half_done: bool = False
    """Whether a failing POST makes the comment all the same."""

    def add(self, body: str, login: str = APP, number: int = 1) -> dict[str, Any]:
        comment = {
            "id": 100 + len(self.comments),
            "body": body,
            "user": {"login": login, "type": "Bot" if login.endswith("[bot]") else "User"},
            "author": {"id": number, "username": login},
            "html_url": f"{self.url}/comment/{100 + len(self.comments)}",
        }
        self.comments.append(comment)
        return comment

    def open(self, title: str, text: str, login: str = APP) -> dict[str, Any]:
        known = len(self.issues) + 1
        issue = {
            "number": known, "iid": known, "title": title, "body": text, "description": text,
            "state": "open", "user": {"login": login}, "author": {"id": 1},
            "html_url": f"{self.url}/issue/{known}", "web_url": f"{self.url}/issue/{known}",
        }  # fmt: skip
        self.issues.append(issue)
        return issue

    def environment(self, kind: Forge, token: str = TOKEN) -> dict[str, str]:
        """What a pipeline of this forge has for a change of number 7."""
        if kind is Forge.GITHUB:
            return {
                "GITHUB_TOKEN": token, "GITHUB_REPOSITORY": "acme/fleet", "GITHUB_API_URL": self.url,
                "GITHUB_REF": "refs/pull/7/merge",
            }  # fmt: skip
        return {
            "GITLAB_TOKEN": token, "CI_PROJECT_ID": "42", "CI_API_V4_URL": self.url,
            "CI_MERGE_REQUEST_IID": "7",
        }  # fmt: skip

    @property
    def changes(self) -> list[str]:
        return [call for call in self.calls if not call.startswith("GET")]


def _handler(state: Standin) -> type[BaseHTTPRequestHandler]:
    class Handler(Answering):
        def _any(self) -> None:
            url = urlsplit(self.path)
            state.calls.append(f"{self.command} {url.path}")
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            text = str(body.get("body", body.get("description", "")))
            given = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if TOKEN not in (given, self.headers.get("PRIVATE-TOKEN")):
                self.answer(401, {"message": "Bad credentials"})
            elif state.failing and state.failing[0][0] == self.command:
                _, status, headers = state.failing.pop(0)
                if state.half_done and self.command == "POST":
                    state.add(text)
                self.answer(status, {"message": f"refused, token was {TOKEN}"}, headers)
            elif url.path == "/user" and state.app:
                self.answer(403, {"message": "not for apps"})
            elif url.path == "/user":
                self.answer(200, {"login": "me", "id": 1})
            elif len(text) > LONGEST:
                self.answer(422, {"message": "Validation Failed", "errors": ["body is too long"]})
            elif COMMENTS.fullmatch(url.path) and self.command == "POST":
                self.answer(201, state.add(text, APP if state.app else "me"))
            elif COMMENTS.fullmatch(url.path):
                self._page(state.comments, parse_qs(url.query))
            elif ISSUES.fullmatch(url.path) and self.command == "POST":
                self.answer(201, state.open(body["title"], text))
            elif ISSUES.fullmatch(url.path):
                query = parse_qs(url.query)
                assert query["state"][0] in ("open", "opened")
                there = [one for one in state.issues if one["state"] == "open"]
                pull = {"number": 999, "pull_request": {}, "body": "x", "user": {}}
                self._page([*there, pull], query)
            elif found := COMMENT.fullmatch(url.path):
                comment = next(c for c in state.comments if c["id"] == int(found[1]))
                comment["body"] = text
                self.answer(200, comment)
            elif found := ISSUE.fullmatch(url.path):
                self._change(state.issues[int(found[1]) - 1], body)
            else:
                self.answer(404, {"message": "Not Found"})

        def _page(self, entries: list[dict[str, Any]], query: dict[str, list[str]]) -> None:
            page, size = int(query["page"][0]), int(query["per_page"][0])
            self.answer(200, entries[(page - 1) * size : page * size])

        def _change(self, issue: dict[str, Any], body: dict[str, Any]) -> None:
            if body.get("state") == "closed" or body.get("state_event") == "close":
                issue["state"] = "closed"
            text = body.get("body", body.get("description"))
            if text is not None:
                issue |= {"body": text, "description": text, "title": body["title"]}
            self.answer(200, issue)

        do_GET = do_POST = do_PATCH = do_PUT = _any

    return Handler


@contextmanager
def forge() -> Iterator[Standin]:
    """A stand-in until the end of the block."""
    state = Standin()
    with serving(_handler(state)) as state.url:
        yield state
