"""Evidence: what was tried against a running cluster, when, and what came of it.

A document is JSON with a digest over itself, so that a later change is noticed; Markdown is rendered from
it for people. It holds no token, no key and no address of a host. The digest shows that nothing was
changed, not who wrote it: whoever can write the file can write its digest too. Keep it where others cannot.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import yaml

from gpuclusters.proof.checks import GKE, USERNETES, Check, CheckLevel, Ladder, Outcome

FORMAT = 1
_LONGEST_CELL = 160
_PARTS = ("cluster", "at", "stack", "program")


class Kind(NamedTuple):
    """What evidence of one kind is about, and how it is said: a part of `evidence.yaml`."""

    name: str
    unit: str
    rows: str
    keys: tuple[str, str, str]
    columns: str
    holds: str
    outcomes: Mapping[Outcome, str]
    verdicts: Mapping[Outcome, str]
    claim: str
    shown: str
    refutes: bool

    @classmethod
    def described(cls, name: str, said: Mapping[str, Any]) -> Self:
        words = {
            key: dict(zip(Outcome, said[key], strict=True)) for key in ("outcomes", "verdicts")
        }
        return cls(name=name, **{**said, **words})


_WRITTEN = yaml.safe_load(Path(__file__).with_name("evidence.yaml").read_text(encoding="utf-8"))
_KINDS = {name: Kind.described(name, said) for name, said in _WRITTEN.items()}
ISOLATION, PROOF, LADDER = _KINDS["isolation"], _KINDS["proof"], _KINDS["ladder"]


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
    setting: Mapping[str, Any] = field(default_factory=dict)
    """What `compare` sets beside the times: the type of the cluster, what isolates in it, what it costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    kind: Kind
    about: About
    checks: Sequence[Check]
    level: str = ""
    """Up to which level was to be shown, where there are levels."""
    ladder: Ladder = USERNETES
    """Which one was climbed, if any."""
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    """Digest of each program that this program brought, by file name."""

    @property
    def title(self) -> str:
        return f"{self.kind.name} of {self.about.cluster}" + (
            f", {self.level}" if self.level else ""
        )

    @property
    def holds(self) -> bool:
        """Whether something was tried and all of it came out as it must."""
        return bool(self.checks) and all(one.outcome is Outcome.PASSED for one in self.checks)

    def counts(self, group: str | None = None) -> Mapping[str, int]:
        """How often each outcome is there, of all or of one level."""
        mine = Counter(one.outcome for one in self.checks if group in (None, one.level))
        return {word: mine[outcome] for outcome, word in self.kind.outcomes.items()}

    @property
    def verdict(self) -> str:
        """One line: how many checks came out how, and what that shows."""
        counts, said = Counter(one.outcome for one in self.checks), self.kind.verdicts
        bad = (Outcome.FAILED, Outcome.NOT_TRIED)
        first, *rest = [o for o in bad if counts[o]] or [Outcome.PASSED if self.holds else bad[0]]
        words = f"{counts[first]} of {len(self.checks)} {self.kind.unit} {said[first]}"
        words += "".join(f", {counts[outcome]} {said[outcome]}" for outcome in rest)
        refuted = self.kind.refutes and counts[Outcome.FAILED]
        broken = "does not hold" if refuted else "is not proven"
        return f"{words}: {self.level or self.kind.name} {'holds' if self.holds else broken}"

    def document(self) -> dict[str, Any]:
        about, kind = asdict(self.about), self.kind
        about["apiServer"] = about.pop("api_server")
        about["remarks"] = list(about.pop("remarks"))
        whole = {"format": FORMAT, "kind": kind.name, **about}
        whole |= {kind.holds: self.holds, "counts": self.counts()}
        whole[kind.rows] = [self._row(check) for check in self.checks]
        if kind is not ISOLATION:
            whole |= {"level": self.level, "programs": dict(self.programs)}
            nodes = {name: dict(facts) for name, facts in self.nodes.items()}
            whole |= {"nodes": nodes, "images": dict(self.images)}
        if kind is LADDER:
            # What each rung asks, and when it holds, for whoever does not know them.
            whole["rungs"] = {
                rung.level: {"shows": step.what, "asked": step.asked, "holdsWhen": step.read}
                for rung, step in self.ladder.steps.items()
            }
            whole["first"] = self.ladder.first.level
        return {**whole, "sha256": digest(whole)}

    def _row(self, check: Check) -> dict[str, Any]:
        about = (check.level, check.subject, check.what)
        row: dict[str, Any] = dict(zip(self.kind.keys, about, strict=True))
        row |= {"outcome": self.kind.outcomes[check.outcome], "said": check.said}
        return row if self.kind is ISOLATION else row | {"figures": dict(check.figures)}

    def markdown(self) -> str:
        """For people; the first line is the verdict."""
        about = self.about
        lines = [
            f"# {about.cluster}: {self.verdict}",
            "",
            f"Tried on {about.at} against stack `{about.stack}`, API server {about.api_server}, "
            f"gpu-clusters {about.program}.",
            "",
            *_listed("", about.remarks),
        ]
        facts = {
            name: ", ".join(f"{key} {value or 'unknown'}" for key, value in one.items())
            for name, one in self.nodes.items()
        }
        lines += _listed("## Nodes", [f"{name}: {text}" for name, text in facts.items()])
        for group in dict.fromkeys(check.level for check in self.checks):
            steps = self.ladder.steps if self.kind is LADDER else {}
            step = next((step for rung, step in steps.items() if rung.level == group), None)
            heading = f"{group}: {step.what} ({step.asked})" if step else group
            lines += [f"## {heading}", "", self.kind.columns, "|---|---|---|---|"]
            for one in self.checks:
                if one.level == group:
                    outcome = self.kind.outcomes[one.outcome]
                    bold = outcome if one.outcome is Outcome.PASSED else f"**{outcome}**"
                    cells = (_cell(one.subject), _cell(one.what), bold, _cell(one.said))
                    lines.append(f"| {' | '.join(cells)} |")
            lines.append("")
        images = [f"{test}: `{image}`" for test, image in self.images.items()]
        return "\n".join([*lines, *_listed("## Images", images)])


def _listed(heading: str, items: Iterable[str]) -> Sequence[str]:
    lines = [f"- {item}" for item in items]
    return [*([heading, ""] if heading else []), *lines, ""] if lines else ()


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
    entries, passed = document.get(of.rows), of.outcomes[Outcome.PASSED]
    rows = entries if isinstance(entries, list) else []
    good = [row for row in rows if isinstance(row, Mapping) and row.get("outcome") == passed]
    if not rows or len(good) < len(rows):
        bad = f"{len(rows) - len(good)} of {len(rows)} {of.unit} not {passed}"
        return [*found, f"does not show {of.claim}: {bad}"]
    return [*found, *_left_out(of, document, {str(row.get("level")) for row in good})]


def _left_out(kind: Kind, document: Mapping[str, Any], levels: set[str]) -> Iterator[str]:
    """Levels of which there is no check, although they were to be shown."""
    level = document.get("level")
    if kind is PROOF and level not in levels:
        yield f"does not show {level}: no check of this level is in it"
    if kind is not LADDER:
        return
    highest = next((rung for rung in CheckLevel if rung.level == level), None)
    asked = (GKE if document.get("first") == GKE.first.level else USERNETES).steps
    if highest is None:
        yield f"names no rung ({level!r})"
    elif missing := [r.level for r in asked if r <= highest and r.level not in levels]:
        yield f"does not show {highest.level}: no check of {', '.join(missing)} is in it"


def headline(document: Mapping[str, Any]) -> str:
    """What a document without faults shows."""
    kind = _KINDS[document["kind"]]
    return kind.shown.format(**document, number=len(document[kind.rows]))


def digest(body: Mapping[str, Any]) -> str:
    """Of a document without its own digest."""
    kept = {key: value for key, value in body.items() if key != "sha256"}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _cell(text: str) -> str:
    """Text as a cell of a Markdown table: one line, no bars, not too long."""
    flat = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return flat if len(flat) <= _LONGEST_CELL else flat[: _LONGEST_CELL - 1] + "…"
