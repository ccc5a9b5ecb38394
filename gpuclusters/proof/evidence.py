"""Evidence: what was tried against a running cluster, when, and what came of it.

A document is JSON with a digest over itself, so that a later change is noticed; Markdown is rendered from
it for people. It holds no token, no key and no address of a host. The digest shows that nothing was
changed, not who wrote it: whoever can write the file can write its digest too. Keep it where others cannot.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from gpuclusters.proof.checks import STEPS, Check, CheckLevel, Outcome

FORMAT = 1
_LONGEST_CELL = 160
_PARTS = ("cluster", "at", "stack", "program")


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Which cluster, when and by what."""

    cluster: str
    stack: str
    at: str
    program: str
    api_server: str
    remarks: Sequence[str] = ()
    """What this run cannot show, for example because machines are simulated."""


class Entry(NamedTuple):
    """One thing that was tried, as a row of a table."""

    group: str
    subject: str
    what: str
    outcome: StrEnum
    said: str

    def __str__(self) -> str:
        return f"{self.group} {self.subject}: {self.what} ({self.said})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What all kinds have in common; a kind says what its entries are called and what they show."""

    kind: ClassVar[str]
    outcomes: ClassVar[type[StrEnum]]
    unit: ClassVar[str]
    """What the entries are, in the plural: the field that has them."""
    rows: ClassVar[str]
    """Key of the entries in a document."""
    keys: ClassVar[tuple[str, str, str]]
    """Fields of an entry: what it is grouped by, who or what it is about, what was tried."""
    columns: ClassVar[str]
    good: ClassVar[tuple[str, str]]
    """The outcome of every entry if it holds, and how that is said."""
    bad: ClassVar[Mapping[str, str]]
    refuted: ClassVar[str] = ""
    """The outcome that shows the opposite."""
    claim: ClassVar[str]
    """What a document shows: `does not show …`."""
    shown: ClassVar[str]
    """What a document without faults shows, with its parts in braces."""

    about: About
    level: str = ""
    """Up to which level was to be shown, where there are levels."""

    def body(self) -> Mapping[str, Any]:
        """The part of the document that only this kind has."""
        raise NotImplementedError

    @classmethod
    def faults_of(cls, document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:  # noqa: ARG003
        """What else keeps a document whose entries are all good from being evidence."""
        return []

    @property
    def title(self) -> str:
        return f"{self.kind} of {self.about.cluster}" + (f", {self.level}" if self.level else "")

    @property
    def entries(self) -> Sequence[Entry]:
        keys = (*self.keys, "outcome", "said")
        return [Entry(*(getattr(one, key) for key in keys)) for one in getattr(self, self.unit)]

    @property
    def counts(self) -> Mapping[str, int]:
        return counted((entry.outcome for entry in self.entries), self.outcomes)

    def is_good(self, entry: Entry) -> bool:
        return str(entry.outcome) == self.good[0]

    @property
    def holds(self) -> bool:
        """Whether something was tried and all of it came out as it must."""
        return bool(self.entries) and all(map(self.is_good, self.entries))

    @property
    def verdict(self) -> str:
        """One line: how many entries came out how, and what that shows."""
        counts, words = self.counts, dict([self.good]) if self.holds else self.bad
        first, *rest = [o for o in words if counts[o]] or [next(iter(words))]
        said = f"{counts[first]} of {sum(counts.values())} {self.unit} {words[first]}"
        said += "".join(f", {counts[outcome]} {words[outcome]}" for outcome in rest)
        broken = "does not hold" if counts.get(self.refuted) else "is not proven"
        return f"{said}: {self.level or self.kind} {'holds' if self.holds else broken}"

    def document(self) -> dict[str, Any]:
        about = asdict(self.about)
        about["apiServer"] = about.pop("api_server")
        about["remarks"] = list(about.pop("remarks"))
        whole = {"format": FORMAT, "kind": self.kind, **about, **self.body()}
        return {**whole, "sha256": digest(whole)}

    def markdown(self) -> str:
        """For people; the first line is the verdict."""
        about = self.about
        lines = [
            f"# {about.cluster}: {self.verdict}",
            "",
            f"Tried on {about.at} against stack `{about.stack}`, API server {about.api_server}, "
            f"gpu-clusters {about.program}.",
            "",
            *(f"- {remark}" for remark in about.remarks),
            *([""] if about.remarks else []),
            *self._before(),
        ]
        for group in dict.fromkeys(entry.group for entry in self.entries):
            lines += [f"## {self._heading(group)}", "", self.columns, "|---|---|---|---|"]
            lines += [self._row(entry) for entry in self.entries if entry.group == group]
            lines.append("")
        return "\n".join([*lines, *self._after()])

    def _before(self) -> Sequence[str]:
        return ()

    def _after(self) -> Sequence[str]:
        return ()

    def _heading(self, group: str) -> str:
        return group

    def _row(self, entry: Entry) -> str:
        outcome = entry.outcome if self.is_good(entry) else f"**{entry.outcome}**"
        return f"| {_cell(entry.subject)} | {_cell(entry.what)} | {outcome} | {_cell(entry.said)} |"


class AttemptOutcome(StrEnum):
    REFUSED = "refused"
    SUCCEEDED = "succeeded"
    """The isolation has a hole."""
    NOT_TRIED = "not-tried"
    """It could not be tried; `said` says why."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a hostile tenant would try, and what came of it."""

    area: str
    """For example `rights`, `pods`, `api`, `leases`, `network`."""
    tenant: str
    attempt: str
    outcome: AttemptOutcome
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationEvidence(Evidence):
    kind = "isolation"
    outcomes = AttemptOutcome
    unit, rows, keys = "attempts", "findings", ("area", "tenant", "attempt")
    columns = "| Tenant | Attempt | Outcome | The cluster said |"
    good = ("refused", "were refused")
    bad: ClassVar = {"succeeded": "succeeded", "not-tried": "could not be made"}
    refuted = "succeeded"
    claim = "isolation"
    shown = "the isolation of {cluster} on {at}: {number} attempts, all refused"

    attempts: Sequence[Attempt]

    def body(self) -> Mapping[str, Any]:
        attempts = [asdict(attempt) for attempt in self.attempts]
        return {"isolated": self.holds, "counts": self.counts, self.rows: attempts}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofEvidence(Evidence):
    """All checks of one run, that GPUs work."""

    kind = "proof"
    outcomes = Outcome
    unit, rows, keys = "checks", "checks", ("level", "subject", "what")
    columns = "| About | Check | Outcome | Found |"
    good = ("passed", "passed")
    bad: ClassVar = {"failed": "failed", "not-tried": "could not be made"}
    claim = "that GPUs work"
    shown = "that the GPUs of {cluster} worked on {at}: {level}, {number} checks, all passed"

    checks: Sequence[Check]
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    """Digest of each program that this program brought, by file name."""

    def body(self) -> Mapping[str, Any]:
        return {
            "level": self.level,
            "proven": self.holds,
            "counts": self.counts,
            "nodes": {name: dict(facts) for name, facts in self.nodes.items()},
            "images": dict(self.images),
            "programs": dict(self.programs),
            self.rows: [check.document() for check in self.checks],
        }

    @classmethod
    def faults_of(cls, document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """A level of which there is no check."""
        level = document.get("level")
        if any(row.get("level") == level for row in rows):
            return []
        return [f"does not show {level}: no check of this level is in it"]

    def _before(self) -> Sequence[str]:
        nodes = [
            f"- {name}: " + ", ".join(f"{key} {value or 'unknown'}" for key, value in facts.items())
            for name, facts in self.nodes.items()
        ]
        return ["## Nodes", "", *nodes, ""] if nodes else ()

    def _after(self) -> Sequence[str]:
        images = [f"- {test}: `{image}`" for test, image in self.images.items()]
        return ["## Images", "", *images, ""] if images else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderEvidence(ProofEvidence):
    """All checks of one climb; `level` is the highest rung that was asked for, `R9`."""

    kind = "ladder"
    claim = "that the ladder holds"
    shown = "that the ladder of {cluster} held on {at} up to {level}: {number} checks, all passed"

    def body(self) -> Mapping[str, Any]:
        """Also what each rung asks, and when it holds, for whoever does not know them."""
        rungs = {
            rung.level: {"shows": step.what, "asked": step.asked, "holdsWhen": step.read}
            for rung, step in STEPS.items()
        }
        return {**ProofEvidence.body(self), "rungs": rungs}

    @classmethod
    def faults_of(cls, document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Rungs that were left out."""
        highest = next((rung for rung in CheckLevel if rung.level == document.get("level")), None)
        if highest is None:
            return [f"names no rung ({document.get('level')!r})"]
        climbed = {str(row.get("level")) for row in rows}
        missing = [r.level for r in CheckLevel if r <= highest and r.level not in climbed]
        if not missing:
            return []
        return [f"does not show {highest.level}: no check of {', '.join(missing)} is in it"]

    def _heading(self, group: str) -> str:
        step = next(step for rung, step in STEPS.items() if rung.level == group)
        return f"{group}: {step.what} ({step.asked})"


_KINDS: Mapping[str, type[Evidence]] = {
    kind.kind: kind for kind in (IsolationEvidence, ProofEvidence, LadderEvidence)
}


def faults(document: Any) -> list[str]:
    """What keeps a document from being unaltered evidence of something; empty if it is."""
    if not isinstance(document, Mapping) or type(document.get("format")) is not int:
        return ["is no evidence: it is no JSON object with a format"]
    version = document["format"]
    if version != FORMAT:
        newer = "; a newer gpu-clusters may read it" if version > FORMAT else ""
        return [f"is no evidence of format {FORMAT} (it says {version}){newer}"]
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        return [f"is evidence of another kind ({kind!r}); this version knows {', '.join(_KINDS)}"]
    found = []
    if document.get("sha256") != digest(document):
        found.append("was altered: its digest does not fit its content")
    if missing := [part for part in _PARTS if not isinstance(document.get(part), str)]:
        found.append(f"is incomplete: it does not say {', '.join(missing)}")
    of = _KINDS[kind]
    entries = document.get(of.rows)
    rows = entries if isinstance(entries, list) else []
    good = [row for row in rows if isinstance(row, Mapping) and row.get("outcome") == of.good[0]]
    if not rows or len(good) < len(rows):
        bad = f"{len(rows) - len(good)} of {len(rows)} {of.unit} not {of.good[0]}"
        return [*found, f"does not show {of.claim}: {bad}"]
    return found + of.faults_of(document, good)


def headline(document: Mapping[str, Any]) -> str:
    """What a document without faults shows."""
    kind = _KINDS[document["kind"]]
    return kind.shown.format(**document, number=len(document[kind.rows]))


def counted(outcomes: Iterable[str], kinds: type[StrEnum]) -> dict[str, int]:
    """How often each outcome is there; those that are not are 0."""
    found = Counter(str(outcome) for outcome in outcomes)
    return {kind.value: found[kind.value] for kind in kinds}


def digest(body: Mapping[str, Any]) -> str:
    """Of a document without its own digest."""
    kept = {key: value for key, value in body.items() if key != "sha256"}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _cell(text: str) -> str:
    """Text as a cell of a Markdown table: one line, no bars, not too long."""
    flat = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return flat if len(flat) <= _LONGEST_CELL else flat[: _LONGEST_CELL - 1] + "…"
