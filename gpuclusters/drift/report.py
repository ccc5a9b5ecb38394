"""Findings of drift, what nobody looked at, and the report of both, in a stable order."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from gpuclusters.core import codes
from gpuclusters.core.codes import Code, Severity
from gpuclusters.review.plan import Action
from gpuclusters.review.text import cut, masked_text, plural, visible

CODES: Final = {code: known for code, known in codes.listed().items() if known.severity}
"""Of what is looked for as drift."""
_LONGEST = 400
_MOST_LINES = 12


class Group(StrEnum):
    """Where a reader looks for it. The order is that of the report."""

    HOSTS = "hosts"
    CLUSTER = "cluster"
    TENANTS = "tenants"
    HELM = "helm"
    STACK = "stack"


_GROUPS: Final = {
    **dict.fromkeys(("gpu", "gpu-operator", "mig", "node"), Group.CLUSTER),
    "tenancy": Group.TENANTS,
    "tenant": Group.TENANTS,
    "helm": Group.HELM,
    "stack": Group.STACK,
}
"""By area of a code; the others are about machines."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it was declared."""

    id: str
    where: str
    """The machine, node, namespace or tenant."""
    what: str
    """The file, function, partition, object or resource."""
    declared: str = ""
    """What was declared, in words; empty where it is the absence of something."""
    found: str = ""
    by: str = ""
    """Who changed it, where that is known: the field manager, and when."""
    up: bool | None = None
    """Whether `gpu-clusters up --refresh` puts it back; None where that is not known."""
    do: str = ""
    """Instead of the code's own remedy."""
    urn: str = ""
    """Of the resource that declares it, where there is one."""
    details: tuple[str, ...] = ()
    """Differences, one a line, where there are several."""

    @property
    def known(self) -> Code:
        return codes.of(self.id)

    @property
    def title(self) -> str:
        return self.known.means.rstrip(".")

    @property
    def severity(self) -> Severity:
        """How bad it is. What only a refresh finds is critical."""
        return self.known.severity or Severity.CRITICAL

    @property
    def group(self) -> Group:
        return _GROUPS.get(self.id.partition(".")[0], Group.HOSTS)

    @property
    def remedy(self) -> str:
        if self.up:
            return "`gpu-clusters up --refresh`"
        # Not `format`, and at once: what a finding names may have braces in it.
        return self.do or codes.VALUE.sub(
            lambda place: str(getattr(self, place[1], "…")), self.known.do
        )

    @property
    def order(self) -> tuple[int | str, ...]:
        """Worst first, then by place; the same for the same findings in whatever order they came."""
        place = (self.where, self.id, self.what, self.declared, self.found, self.urn)
        return (list(Group).index(self.group), self.severity.rank, *place)


@dataclass(frozen=True, slots=True, order=True)
class Unseen:
    """Something that was not looked at. Whether it drifted nobody knows."""

    what: str
    why: str
    do: str = ""


def of_lines(
    id_: str, where: str, what: str, declared: str, lines: Sequence[str], **more: Any
) -> Finding:
    """A finding of one difference, or of several that are its details."""
    if len(lines) == 1:
        return Finding(id_, where, what, declared, lines[0], **more)
    rest = len(lines) - _MOST_LINES
    details = (*lines[:_MOST_LINES], *([f"… and {rest} more"] if rest > 0 else ()))
    found = f"{len(lines)} differences"
    return Finding(id_, where, what, declared, found, details=details, **more)


def harmless(finding: Finding) -> Finding:
    """With no control character, no secret, and nothing longer than can be read."""
    names = ("where", "what", "declared", "found", "by", "do")
    cleaned: dict[str, Any] = {name: clean(getattr(finding, name)) for name in names}
    return replace(finding, details=tuple(map(clean, finding.details)), **cleaned)


def clean(text: str) -> str:
    """A text of unknown origin as it may be shown: one line, no secret."""
    return cut(visible(masked_text(text)), _LONGEST)


CLEAN, DRIFTED, BLIND = 0, 1, 2

_SAID_BETTER: Final[Mapping[str, tuple[str, ...]]] = {
    "preflight.not-on-vfio": ("vfio.unbound",),
}
"""Findings of the preflight that others tell with more words, on the same machine."""


@dataclass(frozen=True, slots=True)
class Looked:
    """How much of something was looked at: `70 resources`."""

    what: str
    count: int


Told = Finding | Unseen | Looked


@dataclass(frozen=True, slots=True)
class Report:
    stack: str
    findings: tuple[Finding, ...]
    unseen: tuple[Unseen, ...] = ()
    looked: tuple[Looked, ...] = ()
    ignored: int = 0
    plan: tuple[tuple[Action, str], ...] = ()
    """What a following `up` would do, by name of the resource; empty also where that is not known."""
    planned: bool = False

    @property
    def exit_code(self) -> int:
        """0: all was looked at and nothing drifted; 1: drift; 2: something was not looked at."""
        return BLIND if self.unseen else DRIFTED if self.findings else CLEAN

    @property
    def verdict(self) -> str:
        found = plural(len(self.findings), "finding") if self.findings else "no drift"
        if not self.unseen:
            return found
        return f"{found if self.findings else 'no drift found'}, and not everything was looked at"

    @property
    def up_would(self) -> str:
        """Head of what a following `up` would do: with a machine away it does nothing at all."""
        return "would now" if not self.unseen else "would do once all of that can be reached"

    def of(self, group: Group) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.group is group)

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)


def report(
    stack: str,
    told: Iterable[Told],
    *,
    ignore: Sequence[str] = (),
    plan: Mapping[str, Action] | None = None,
) -> Report:
    """Join what was found, in any order; the same thing seen twice is told once.

    `ignore` are patterns `id`, `id@where` or `id@where/what`, with `*`; `plan` is by URN what a following
    `up` would do, None where that is not known.
    """
    every = list(told)
    joined = _once([harmless(one) for one in every if isinstance(one, Finding)])
    kept = [finding for finding in joined if not any(_fits(finding, p) for p in ignore)]
    unseen = {
        Unseen(clean(u.what), clean(u.why), clean(u.do)) for u in every if isinstance(u, Unseen)
    }
    return Report(
        stack=clean(stack),
        findings=tuple(sorted(kept, key=lambda finding: finding.order)),
        unseen=tuple(sorted(unseen)),
        looked=tuple(one for one in every if isinstance(one, Looked)),
        ignored=len(joined) - len(kept),
        plan=tuple(sorted((action, clean(name_of(urn))) for urn, action in (plan or {}).items())),
        planned=plan is not None,
    )


def name_of(urn: str) -> str:
    """`FabricPartitions hgx-01-fabric`."""
    parts = urn.split("::", 3)
    if len(parts) < 4:
        return urn
    return f"{parts[2].rsplit('$', 1)[-1].rsplit(':', 1)[-1]} {parts[3]}"


def _once(findings: Sequence[Finding]) -> list[Finding]:
    """Without what is told twice: by the same kind of the same thing, or better by another kind."""
    kinds = {(finding.where, finding.id) for finding in findings}
    found: dict[tuple[str, str, str], Finding] = {}
    for finding in sorted(findings, key=lambda f: f.order):
        better = _SAID_BETTER.get(finding.what, ()) if finding.id == "host.unfit" else ()
        if any((finding.where, id_) in kinds for id_ in better):
            continue
        key = (finding.id, finding.where, finding.what)
        known = found.get(key)
        found[key] = finding if known is None else _both(known, finding)
    return list(found.values())


def _both(one: Finding, other: Finding) -> Finding:
    """The same kind of the same thing, told twice: what either of them knows."""
    # Whoever asked who it was knows more of what `up` does about it, too.
    first, second = (other, one) if other.by and not one.by else (one, other)
    lines = dict.fromkeys((*_lines(one), *_lines(other)))
    several = len(lines) > 1
    return replace(
        first,
        urn=first.urn or second.urn,
        up=second.up if first.up is None else first.up,
        found=f"{len(lines)} differences" if several else first.found,
        details=tuple(lines) if several else first.details,
    )


def _lines(finding: Finding) -> tuple[str, ...]:
    return finding.details or (finding.found,)


def _fits(finding: Finding, pattern: str) -> bool:
    id_, at, place = pattern.partition("@")
    if not fnmatchcase(finding.id, id_):
        return False
    if not at:
        return True
    # A machine or namespace alone, or with the thing on it; paths have slashes of their own.
    return fnmatchcase(finding.where, place) or fnmatchcase(
        f"{finding.where}/{finding.what}", place
    )


FORMAT = 1


class DocumentError(Exception):
    """JSON that is no report of ours. One sentence."""


def document(report: Report) -> dict[str, Any]:
    """For programs. Keys are added in later versions, never taken away."""
    return {
        "format": FORMAT,
        "stack": report.stack,
        "verdict": report.verdict,
        "exit_code": report.exit_code,
        "counts": {severity.value: report.count(severity) for severity in Severity},
        "ignored": report.ignored,
        "findings": [_finding(finding) for finding in report.findings],
        "not_looked_at": [asdict(unseen) for unseen in report.unseen],
        "looked_at": {looked.what: looked.count for looked in report.looked},
        "up_would": (
            [{"action": action.value, "resource": name} for action, name in report.plan]
            if report.planned
            else None
        ),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    said = asdict(finding)
    by, up = said.pop("by"), said.pop("up")
    return said | {
        "severity": finding.severity,
        "group": finding.group,
        "title": finding.title,
        "changed_by": by or None,
        "up_puts_it_back": up,
        "do": finding.remedy,
        "urn": finding.urn or None,
    }


def report_of(value: Any, *, ignore: Sequence[str] = ()) -> Report:
    """The report that a document is of, made harmless again; DocumentError if it is of something else."""
    if not isinstance(value, Mapping) or "findings" not in value or "not_looked_at" not in value:
        raise DocumentError("it is not what `gpu-clusters drift --json` prints")
    if value.get("format") != FORMAT:
        raise DocumentError(f"it is of format {value.get('format')}, this reads format {FORMAT}")
    try:
        unseen = [{key: str(text) for key, text in e.items()} for e in value["not_looked_at"]]
        told: tuple[Told, ...] = (
            *map(_finding_of, value["findings"]),
            *(Unseen(**one) for one in unseen),
            *(Looked(str(what), int(count)) for what, count in value["looked_at"].items()),
        )
        made = report(str(value["stack"]), told, ignore=ignore)
        plan = value["up_would"]
        steps = [(Action(entry["action"]), str(entry["resource"])) for entry in plan or ()]
        ignored = made.ignored + int(value["ignored"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DocumentError(f"it is not whole ({type(error).__name__}: {error})") from error
    return replace(made, ignored=ignored, plan=tuple(sorted(steps)), planned=plan is not None)


def _finding_of(entry: Mapping[str, Any]) -> Finding:
    if entry["id"] not in codes.listed():
        raise ValueError(f"no code {entry['id']!r}; it may be of a later version")
    up, by = entry["up_puts_it_back"], str(entry["changed_by"] or "")
    names = ("id", "where", "what", "declared", "found", "do", "urn")
    texts: dict[str, Any] = {name: str(entry[name] or "") for name in names}
    details = tuple(map(str, entry["details"]))
    return Finding(**texts, by=by, up=up if isinstance(up, bool) else None, details=details)
