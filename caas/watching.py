"""A collection of objects, first as it is, then as it changes, for as long as somebody listens."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple

from caas.connection import ClusterError, Connection

IDLE_SECONDS = 150.0
"""The server sends a bookmark every minute; a connection on which none comes is dead."""
LONGEST_PAUSE_SECONDS = 15.0

_NOT_FOUND = 404
_GONE = 410
_log = logging.getLogger(__name__)


class Event(NamedTuple):
    """A change. `SYNC` says that what came before is all there is; its object is the list's metadata."""

    kind: Literal["SYNC", "ADDED", "MODIFIED", "DELETED"]
    object: dict[str, Any]


Listing = Callable[[], Awaitable[tuple[list[dict[str, Any]], dict[str, Any]]]]


async def watch(
    connection: Connection, path: str, query: Sequence[tuple[str, str]], listing: Listing
) -> AsyncIterator[Event]:
    """Events without end; what was missed while the server was away comes as events too.

    A kind that does not exist (yet) has no objects. It is asked for again and again, like a collection
    that may not be read, which however never comes to a `SYNC`.
    """
    known: dict[str, dict[str, Any]] = {}
    failures = 0
    version = ""
    while True:
        try:
            if not version:
                items, metadata = await listing()
                for event in _differences(known, items):
                    yield event
                version = metadata["resourceVersion"]
                yield Event("SYNC", metadata)
            failures = 0
            async for change, latest in _stream(connection, path, query, version):
                version = latest
                if change is not None:
                    _remember(known, change)
                    yield change
        except ClusterError as error:
            if error.status == _GONE:
                version = ""
                continue
            if error.status:
                version = ""
            failures += 1
            if error.status == _NOT_FOUND:
                for event in _differences(known, []):
                    yield event
                yield Event("SYNC", {})
            if failures == 1 or error.status != _NOT_FOUND:
                _log.warning("watch of %s: %s", path, error)
            pause = min(0.1 * 2.0**failures, LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311


async def _stream(
    connection: Connection, path: str, query: Sequence[tuple[str, str]], version: str
) -> AsyncIterator[tuple[Event | None, str]]:
    """Events after `version`, each with the version that it leads to; bookmarks are None."""
    asked = [
        *query,
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("resourceVersion", version),
        # Watches that began together do not all end together.
        ("timeoutSeconds", str(random.randint(240, 480))),  # noqa: S311
    ]
    async with connection.lines(path, asked, idle_seconds=IDLE_SECONDS) as lines:
        async for line in lines:
            try:
                said = json.loads(line)
            except ValueError as error:
                raise ClusterError(
                    f"the watch of {path} broke off within a line", reason="Unreachable"
                ) from error
            kind, body = said["type"], said["object"]
            if kind == "ERROR":
                raise ClusterError(
                    f"the watch of {path} ended: {body.get('message')}",
                    status=int(body.get("code") or 0),
                    reason=str(body.get("reason") or ""),
                )
            latest = body["metadata"]["resourceVersion"]
            yield (None if kind == "BOOKMARK" else Event(kind, body)), latest


def _key(body: dict[str, Any]) -> str:
    metadata = body["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}/{metadata.get('uid', '')}"


def _remember(known: dict[str, dict[str, Any]], event: Event) -> None:
    if event.kind == "DELETED":
        known.pop(_key(event.object), None)
    else:
        known[_key(event.object)] = event.object


def _differences(known: dict[str, dict[str, Any]], items: Sequence[dict[str, Any]]) -> list[Event]:
    """What happened between what was known and what is; `known` is brought up to date."""
    now = {_key(item): item for item in items}
    events = [Event("DELETED", body) for key, body in known.items() if key not in now]
    for key, body in now.items():
        before = known.get(key)
        if before is None:
            events.append(Event("ADDED", body))
        elif before["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            events.append(Event("MODIFIED", body))
    known.clear()
    known.update(now)
    return events
