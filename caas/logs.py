"""One form of log for every program in the cluster: a JSON object per line on standard error.

`log.info("lease granted", extra={"fields": {"host": "hgx-01"}})` gives time, level, logger, message, fields.
Secrets do not get through: a field whose name says that it holds one is blotted out, and so is text that
looks like one or that a program has named with `hide`. Not logging them is the first line of defence.
"""

import json
import logging
import re
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

REDACTED = "(redacted)"

_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)|secret|token|authori[sz]ation|cookie|credential|api[_-]?key|private[_-]?key",
    re.IGNORECASE,
)
_SECRET_TEXT = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S
        ),
        REDACTED,
    ),
    (re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1 {REDACTED}"),
    (re.compile(r"\beyJ[\w-]{5,}\.[\w-]*\.?[\w-]*"), REDACTED),
    (re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"), REDACTED),
    (
        re.compile(
            r"""((?:pass(?:word|wd|phrase)|secret|token|api[_-]?key)["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;&]+)""",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
)
_SHORTEST_HIDDEN = 4
"""A shorter value occurs in ordinary words, and blotting it out would only garble the log."""

_LIBRARIES = ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncssh", "httpx", "httpcore")
_hidden: set[str] = set()


def configure(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send all logs of this process, libraries' included, to `stream` (standard error) in this form."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _LIBRARIES:
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
    # Each names every command or request that it sends; that is detail, and may name who asks.
    for name in ("asyncssh", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def hide(value: str) -> None:
    """Blot this very text out of everything that is logged from now on."""
    if len(value) >= _SHORTEST_HIDDEN:
        _hidden.add(value)


def redact(text: str) -> str:
    """The text without what is, or looks like, a secret."""
    for value in sorted(_hidden, key=len, reverse=True):
        text = text.replace(value, REDACTED)
    for pattern, replacement in _SECRET_TEXT:
        text = pattern.sub(replacement, text)
    return text


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, message, and what else the record holds."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        fields = _fields(record)
        if fields:
            entry["fields"] = fields
        if record.exc_info and record.exc_info[0] is not None:
            entry["exception"] = redact(
                "".join(traceback.format_exception(*record.exc_info)).rstrip()
            )
        return json.dumps(entry, ensure_ascii=False)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    given = getattr(record, "fields", None)
    return (
        {str(k): _clean(str(k), v) for k, v in given.items()} if isinstance(given, Mapping) else {}
    )


def _clean(name: str, value: Any) -> Any:
    """The value as JSON can hold it, without secrets."""
    if _SECRET_NAME.search(name) and value is not None:
        return REDACTED
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(key): _clean(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        members = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [_clean("", inner) for inner in members]
    return redact(str(value))
