"""Logs are one JSON object per line, and secrets do not get through."""

import gc
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from caas import logs
from caas.settings import secret

TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----"


@pytest.fixture(scope="module")
def no_others() -> Iterator[None]:
    """What other tests left is not found now, to complain here that it was never closed."""
    gc.collect()  # seconds, after hundreds of tests
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def stream(no_others: None) -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    written = io.StringIO()
    logs.configure("info", written)
    yield written
    root.handlers[:] = before
    root.setLevel(level)


def fail(text: str) -> None:
    raise ValueError(text)


def entries(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_record_is_one_line_of_json_with_its_fields(stream: io.StringIO) -> None:
    fields = {"host": "hgx-01", "gpus": {3, 1}, "at": None, "nested": {"size": 2}}
    logging.getLogger("caas.x").warning("lease %s\ngranted", "a", extra={"fields": fields})
    (entry,) = entries(stream)
    assert entry.pop("time").endswith("+00:00")
    assert entry == {
        "level": "warning",
        "logger": "caas.x",
        "message": "lease a\ngranted",
        "fields": {"host": "hgx-01", "gpus": [1, 3], "at": None, "nested": {"size": 2}},
    }


@pytest.mark.parametrize(
    "name", ["token", "bmc_password", "Authorization", "ssh-private-key", "apiKey", "cookie"]
)
def test_a_field_named_like_a_secret_is_blotted_out_at_any_depth(
    stream: io.StringIO, name: str
) -> None:
    fields = {name: "hunter2", "request": {name: ["hunter2"], "ok": 1}}
    logging.getLogger("x").info("request", extra={"fields": fields})
    assert "hunter2" not in stream.getvalue()
    assert entries(stream)[0]["fields"]["request"]["ok"] == 1


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"got {TOKEN} from tenant a", "from tenant a"),
        (f"Authorization: Bearer {TOKEN[4:]} refused", "refused"),
        (f"key {KEY} cannot be read", "cannot be read"),
        ("GET https://admin:hunter2hunter2@bmc/redfish failed", "@bmc/redfish failed"),
        ('{"password": "hunter2hunter2", "user": "admin"}', '"user": "admin"'),
        ("POST token=hunter2hunter2&grant=x", "&grant=x"),
    ],
)
def test_what_looks_like_a_secret_is_blotted_out_of_messages_fields_and_exceptions(
    stream: io.StringIO, text: str, kept: str
) -> None:
    secrets = (TOKEN[4:], "b3BlbnNzaC1rZXk", "hunter2hunter2")
    try:
        fail(text)
    except ValueError:
        logging.getLogger("x").exception(text, extra={"fields": {"answer": text}})
    (entry,) = entries(stream)
    assert "ValueError: " in entry["exception"]
    for place in (entry["message"], entry["fields"]["answer"], entry["exception"]):
        assert not [secret for secret in secrets if secret in place]
        assert kept in place


def test_what_is_read_as_a_secret_never_appears(
    stream: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bmc-password").write_text("battery-staple\n")
    monkeypatch.setenv("GPU_CLUSTERS_SECRETS", str(tmp_path))
    hidden = secret("bmc-password")
    fields = {"a": [f"it is {hidden}"]}
    logging.getLogger("x").info("login with %s failed", hidden, extra={"fields": fields})
    assert entries(stream)[0]["message"] == "login with (redacted) failed"
    assert "staple" not in stream.getvalue()


def test_servers_in_the_process_log_in_the_same_form(stream: io.StringIO) -> None:
    logging.getLogger("uvicorn.access").handlers.append(logging.StreamHandler(io.StringIO()))
    logs.configure("info", stream)
    logging.getLogger("uvicorn.access").info("GET /healthz")
    logging.getLogger("httpx").info("one line per request of ours")
    assert [entry["message"] for entry in entries(stream)] == ["GET /healthz"]
