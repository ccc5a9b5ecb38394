"""A stand-in for the part of GitHub's and GitLab's API that issues need, over real HTTP on loopback.

It keeps issues, checks tokens, pages by a hundred, lists a pull request among GitHub's issues, and can be
told to fail. It refuses what the real ones refuse: too long a text, a wrong token, another project.
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

from tests.fixtures.loopback import serving

TOKEN = "made-up-token-0123456789"
LONGEST = 65_536
LISTS = re.compile(r"/repos/acme/fleet/issues|/projects/42/issues")
ONE = re.compile(r"(?:/repos/acme/fleet|/projects/42)/issues/(\d+)")


@dataclass
class Standin:
    """What it knows and what was asked of it."""

    url: str = ""
    issues: list[dict[str, Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    app: bool = True
    """Whether the token is an app's, as in a workflow: `/user` is refused."""
    failing: list[tuple[str, int]] = field(default_factory=list)
    """Verb and status of answers to come, instead of doing anything."""

    def add(
        self, title: str, text: str, login: str = "github-actions[bot]", number: int = 1
    ) -> dict[str, Any]:
        known = len(self.issues) + 1
        issue = {
            "number": known, "iid": known, "title": title, "body": text, "description": text,
            "state": "open", "user": {"login": login}, "author": {"id": number},
            "html_url": f"{self.url}/issue/{known}", "web_url": f"{self.url}/issue/{known}",
        }  # fmt: skip
        self.issues.append(issue)
        return issue

    @property
    def changes(self) -> list[str]:
        return [call for call in self.calls if not call.startswith("GET")]


def _handler(state: Standin) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Says nothing."""

        def _answer(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _any(self) -> None:
            url = urlsplit(self.path)
            state.calls.append(f"{self.command} {url.path}")
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            given = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if TOKEN not in (given, self.headers.get("PRIVATE-TOKEN")):
                self._answer(401, {"message": "Bad credentials"})
            elif state.failing and state.failing[0][0] == self.command:
                self._answer(state.failing.pop(0)[1], {"message": f"refused, token was {TOKEN}"})
            elif url.path == "/user":
                self._answer(
                    403 if state.app else 200, {} if state.app else {"login": "me", "id": 1}
                )
            elif LISTS.fullmatch(url.path):
                self._all(parse_qs(url.query), body)
            elif found := ONE.fullmatch(url.path):
                self._change(state.issues[int(found[1]) - 1], body)
            else:
                self._answer(404, {"message": "Not Found"})

        def _all(self, query: dict[str, list[str]], body: dict[str, Any]) -> None:
            text = body.get("body", body.get("description", ""))
            if self.command == "GET":
                page, size = int(query["page"][0]), int(query["per_page"][0])
                assert query["state"][0] in ("open", "opened")
                there = [one for one in state.issues if one["state"] == "open"]
                pulls = [{"number": 999, "pull_request": {}, "body": "x", "user": {}}]
                self._answer(200, [*there, *pulls][(page - 1) * size : page * size])
            elif len(text) > LONGEST:
                self._answer(422, {"message": "Validation Failed", "errors": ["body is too long"]})
            else:
                self._answer(201, state.add(body["title"], text))

        def _change(self, issue: dict[str, Any], body: dict[str, Any]) -> None:
            if body.get("state") == "closed" or body.get("state_event") == "close":
                issue["state"] = "closed"
            text = body.get("body", body.get("description"))
            if text is not None:
                issue |= {"body": text, "description": text, "title": body["title"]}
            self._answer(200, issue)

        do_GET = do_POST = do_PATCH = do_PUT = _any

    return Handler


@contextmanager
def forge() -> Iterator[Standin]:
    """A stand-in until the end of the block."""
    state = Standin()
    with serving(_handler(state)) as state.url:
        yield state
