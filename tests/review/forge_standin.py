"""A stand-in for the part of GitHub's and GitLab's API that comments need, over real HTTP on loopback.

It keeps comments, checks tokens, pages by a hundred, and can be told to fail. It refuses what the real ones
refuse: a comment that is too long, a wrong token, a project that it does not know.
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
GITHUB_COMMENTS = re.compile(r"/repos/acme/fleet/issues/7/comments")
GITHUB_COMMENT = re.compile(r"/repos/acme/fleet/issues/comments/(\d+)")
GITLAB_NOTES = re.compile(r"/projects/42/merge_requests/7/notes")
GITLAB_NOTE = re.compile(r"/projects/42/merge_requests/7/notes/(\d+)")


@dataclass
class Standin:
    """What it knows and what was asked of it."""

    url: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    app: bool = True
    """Whether the token is an app's, as in a workflow: `/user` is refused."""
    failing: list[tuple[str, int, dict[str, str]]] = field(default_factory=list)
    """Verb, status and headers of answers to come, instead of doing anything."""
    half_done: bool = False
    """Whether a failing POST makes the comment all the same."""

    def add(self, body: str, login: str, number: int) -> dict[str, Any]:
        comment = {
            "id": 100 + len(self.comments),
            "body": body,
            "user": {"login": login, "type": "Bot" if login.endswith("[bot]") else "User"},
            "author": {"id": number, "username": login},
            "html_url": f"{self.url}/comment/{100 + len(self.comments)}",
        }
        self.comments.append(comment)
        return comment


def _handler(state: Standin) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Says nothing."""

        def _answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _authorised(self) -> bool:
            return TOKEN in (
                self.headers.get("Authorization", "").removeprefix("Bearer "),
                self.headers.get("PRIVATE-TOKEN"),
            )

        def _any(self) -> None:
            url = urlsplit(self.path)
            state.calls.append(f"{self.command} {url.path}")
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            if not self._authorised():
                self._answer(401, {"message": "Bad credentials"})
            elif state.failing and state.failing[0][0] == self.command:
                _, status, headers = state.failing.pop(0)
                if state.half_done and self.command == "POST":
                    state.add(body["body"], "github-actions[bot]", 1)
                self._answer(status, {"message": f"refused, token was {TOKEN}"}, headers)
            elif url.path == "/user":
                self._answer(
                    *(
                        (403, {"message": "not for apps"})
                        if state.app
                        else (200, {"login": "me", "id": 1})
                    )
                )
            elif GITHUB_COMMENTS.fullmatch(url.path) or GITLAB_NOTES.fullmatch(url.path):
                self._list(parse_qs(url.query), body)
            elif found := GITHUB_COMMENT.fullmatch(url.path) or GITLAB_NOTE.fullmatch(url.path):
                self._edit(int(found[1]), body)
            else:
                self._answer(404, {"message": "Not Found"})

        def _list(self, query: dict[str, list[str]], body: dict[str, Any]) -> None:
            if self.command == "GET":
                page, size = int(query["page"][0]), int(query["per_page"][0])
                self._answer(200, state.comments[(page - 1) * size : page * size])
            elif len(body["body"]) > LONGEST:
                self._answer(422, {"message": "Validation Failed", "errors": ["body is too long"]})
            else:
                self._answer(
                    201, state.add(body["body"], "github-actions[bot]" if state.app else "me", 1)
                )

        def _edit(self, number: int, body: dict[str, Any]) -> None:
            comment = next(c for c in state.comments if c["id"] == number)
            comment["body"] = body["body"]
            self._answer(200, comment)

        do_GET = do_POST = do_PATCH = do_PUT = _any

    return Handler


@contextmanager
def forge() -> Iterator[Standin]:
    """A stand-in until the end of the block."""
    state = Standin()
    with serving(_handler(state)) as state.url:
        yield state
