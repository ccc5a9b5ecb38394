"""What the engine saw: every resource as the state has it, as it is, and what a following `up` would do.

Read from the events of `preview --refresh --json` with PULUMI_ENABLE_STREAMING_JSON_PREVIEW set: of all that
the CLI prints they alone have both sides of a refresh, and they tell what was seen before something failed.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuclusters.review.diffing import differences
from gpuclusters.review.plan import ACTIONS, STACK_TYPE, Action, Resource, Step, resource_of
from gpuclusters.review.text import masked_text

_UNTOLD = {Action.SAME, Action.READ}


class EventsError(Exception):
    """What the engine printed cannot be read, or tells nothing. One sentence."""


@dataclass(frozen=True, slots=True)
class Seen:
    old: Resource
    new: Resource | None
    """As it is; None: gone."""

    @property
    def urn(self) -> str:
        return self.old.urn

    @property
    def host(self) -> str:
        return self.old.host


@dataclass(frozen=True, slots=True)
class View:
    resources: Mapping[str, Seen] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    """By URN, why a resource could not be read."""
    states: Mapping[str, Resource] = field(default_factory=dict)
    """By URN, what the state says of every resource, read or not."""
    plan: Mapping[str, Action] = field(default_factory=dict)
    """By URN, what a following `up` would do; complete only if `planned`."""
    planned: bool = False
    failure: str = ""
    """Why there is no plan, where the reason is not of one resource."""

    def mended(self, urn: str) -> bool | None:
        """Whether a following `up` acts on a resource; None where there is no plan."""
        return urn in self.plan if self.planned else None


def read(lines: Iterable[str]) -> View:
    """The view in what the engine printed, line by line, as it is large; EventsError if no event is in it."""
    reader, told = _Reader(), False
    for line in lines:
        try:
            event = json.loads(line) if line.lstrip().startswith("{") else None
        except (ValueError, RecursionError):
            continue  # the last line of an engine that was killed
        if event is not None:
            told = True
            reader.take(event)
    if not told:
        raise EventsError("the engine told nothing; what it printed besides says why")
    return reader.view()


@dataclass
class _Reader:
    states: dict[str, Resource] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    plan: dict[str, Action] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    succeeded = False

    def take(self, event: Mapping[str, Any]) -> None:
        if pre := _metadata(event, "resourcePreEvent"):
            self._before(pre)
        elif post := _metadata(event, "resOutputsEvent"):
            urn = str(post.get("urn"))
            # A step of the plan has a second event of this kind; the first is that of the refresh.
            if urn in self.states and urn not in self.seen:
                self.seen[urn] = Seen(self.states[urn], resource_of(post.get("new"), urn))
        elif failed := _metadata(event, "resOpFailedEvent"):
            self.unread.setdefault(str(failed.get("urn")), "it could not be read")
        elif diagnostic := _of(event, "diagnosticEvent"):
            self._diagnose(diagnostic)
        elif summary := _of(event, "summaryEvent"):
            self.succeeded = summary.get("result") != "failed"

    def _before(self, metadata: Mapping[str, Any]) -> None:
        urn, op = str(metadata.get("urn")), str(metadata.get("op"))
        action = ACTIONS.get(op)
        if op == "refresh":
            old = resource_of(metadata.get("old"), urn)
            if old is not None:
                self.states[urn] = old
        elif action is not None and action not in _UNTOLD and f"::{STACK_TYPE}::" not in urn:
            self.plan[urn] = action

    def _diagnose(self, diagnostic: Mapping[str, Any]) -> None:
        if diagnostic.get("severity") != "error":
            return
        urn = str(diagnostic.get("urn") or "")
        said = str(diagnostic.get("message", "")).strip()
        for prefix in ("error: ", "Preview failed: ", "preview failed: "):
            said = said.removeprefix(prefix)
        said = masked_text(said.splitlines()[0] if said else "no reason given")
        if urn and urn not in self.seen and urn in self.states:
            self.unread[urn] = said
        elif said not in ("preview failed", "update failed"):
            self.said.append(said)

    def view(self) -> View:
        planned = self.succeeded and not self.unread
        failure = "" if planned else "; ".join(dict.fromkeys(self.said))
        if not planned and not failure and not self.unread:
            failure = "the engine was interrupted"
        unread = {u: w for u, w in sorted(self.unread.items()) if u not in self.seen}
        states, plan = dict(sorted(self.states.items())), dict(sorted(self.plan.items()))
        return View(dict(sorted(self.seen.items())), unread, states, plan, planned, failure)


def merged(first: View, second: View) -> View:
    """What the first look saw, and the plan of a second one that left out what could not be read."""
    if not second.planned:
        return first
    resources, states = {**second.resources, **first.resources}, {**second.states, **first.states}
    return replace(second, resources=resources, unread=first.unread, states=states, failure="")


def _metadata(event: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return _of(_of(event, key), "metadata")


def _of(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def property_lines(seen: Seen) -> tuple[str, ...]:
    """How the inputs differ, a line each: what is there in the place of what was declared."""
    if seen.new is None:
        return ()
    step = Step(Action.UPDATE, seen.urn, seen.old, seen.new)
    lines: list[str] = []
    for one in differences(step):
        if one.lines:
            lines += [f"{one.path}: {line}" for line in one.lines]
        elif one.path not in ("", "drift") or (one.before, one.after) != (None, None):
            after, before = ("nothing" if v is None else v for v in (one.after, one.before))
            lines.append(f"{one.path}: {after} instead of {before}")
    return tuple(lines)
