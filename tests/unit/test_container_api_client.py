"""The client of the containers' API: what it asks again, and what it never sends twice."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
import urllib3

from gpuclusters.container_api import client
from gpuclusters.core.errors import UnreachableError
from tests.fixtures.loopback import serving


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """A server that never answers the first request, and what it was asked."""
    monkeypatch.setattr(client, "_TIMEOUT", urllib3.Timeout(connect=5.0, read=0.5))
    seen: list[str] = []
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.command)
            if len(seen) == 1:
                over.wait(60)
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        do_POST = do_GET

        def log_message(self, *_: object) -> None: ...

    with serving(Handler) as url:
        yield url, seen
        over.set()


def test_a_read_that_nobody_answers_is_asked_again(asked: tuple[str, list[str]]) -> None:
    url, seen = asked
    assert client.ContainerApi(url).call("GET", "/v1/tenancy", "t").status == 200
    assert seen == ["GET", "GET"]


def test_a_change_that_nobody_answers_is_not_sent_twice(asked: tuple[str, list[str]]) -> None:
    url, seen = asked
    with pytest.raises(UnreachableError, match="ReadTimeoutError"):
        client.ContainerApi(url).call("POST", "/v1/containers", "t", {})
    assert seen == ["POST"]
