"""Evidence: what was tried against a running cluster, when, and what came of it.

A document is JSON with a digest over itself, so that one that was altered later is recognised; Markdown
is rendered from it for people. It holds no token, no key and no address of a host. The digest shows
that nothing was changed, not who wrote it: whoever can write the file can write its digest too. Keep it
where others cannot.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

FORMAT = 1
_LONGEST_CELL = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Which cluster, when and by what."""

    cluster: str
    stack: str
    at: str
    """RFC 3339."""
    program: str
    """Version of this program."""
    api_server: str
    """Version of the API server."""
    remarks: Sequence[str] = ()
    """What this run cannot show, for example because machines are simulated."""

    def document(self) -> dict[str, Any]:
        """The part that every kind has."""
        return {
            "cluster": self.cluster,
            "stack": self.stack,
            "at": self.at,
            "program": self.program,
            "apiServer": self.api_server,
            "remarks": list(self.remarks),
        }

    def heading(self, verdict: str) -> list[str]:
        """First lines of the Markdown; `verdict` is the very first."""
        lines = [
            f"# {self.cluster}: {verdict}",
            "",
            f"Tried on {self.at} against stack `{self.stack}`, API server {self.api_server}, "
            f"gpu-clusters {self.program}.",
            "",
        ]
        return lines + [f"- {remark}" for remark in self.remarks] + ([""] if self.remarks else [])


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was tried, as a table shows it."""

    group: str
    outcome: str
    holds: bool
    line: str
    """What was tried and what came of it."""


class Evidence(Protocol):
    """Evidence of any kind."""

    @property
    def kind(self) -> str:
        """`isolation`, `proof`, `ladder`."""

    @property
    def about(self) -> About:
        """Which cluster, when and by what."""

    @property
    def title(self) -> str:
        """Of its table."""

    @property
    def grouped_by(self) -> str:
        """What the groups are: `area`, `level`."""

    @property
    def outcomes(self) -> type[StrEnum]:
        """What can come of an entry."""

    @property
    def entries(self) -> Sequence[Entry]:
        """Everything that was tried."""

    @property
    def holds(self) -> bool:
        """Whether all of it came out as it must."""

    @property
    def verdict(self) -> str:
        """One line for people: how many attempts or checks came out how, and what that shows."""

    def document(self) -> dict[str, Any]:
        """As JSON."""

    def markdown(self) -> str:
        """For people."""


def counted(outcomes: Iterable[str], kinds: type[StrEnum]) -> dict[str, int]:
    """How often each outcome is there; those that are not are 0."""
    found = Counter(str(outcome) for outcome in outcomes)
    return {kind.value: found[kind.value] for kind in kinds}


def share(counts: Mapping[str, int], words: Mapping[str, str], unit: str) -> str:
    """How many of all came out how, for example `2 of 114 attempts succeeded, 1 was not tried`.

    Args:
        counts: number by outcome.
        words: what to say of an outcome, in the order in which to say it; one with a number of 0 is left out.
        unit: what is counted, in the plural.
    """
    said = [f"{counts[outcome]} {word}" for outcome, word in words.items() if counts[outcome]]
    first, *rest = said or [f"0 {next(iter(words.values()))}"]
    number, word = first.split(" ", 1)
    return ", ".join([f"{number} of {sum(counts.values())} {unit} {word}", *rest])


def sealed(kind: str, about: About, body: Mapping[str, Any]) -> dict[str, Any]:
    """A document as it is kept, with its digest."""
    whole = {"format": FORMAT, "kind": kind, **about.document(), **body}
    return {**whole, "sha256": digest(whole)}


def digest(body: Mapping[str, Any]) -> str:
    """Of a document without its own digest."""
    kept = {key: value for key, value in body.items() if key != "sha256"}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def cell(text: str) -> str:
    """Text as a cell of a Markdown table: one line, no bars, not too long."""
    flat = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return flat if len(flat) <= _LONGEST_CELL else flat[: _LONGEST_CELL - 1] + "…"
