"""What is told about findings that have a catalogue of their own, and about the fabric manager's answers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuclusters.config.stack import SECTIONS
from gpuclusters.core import codes
from gpuclusters.core.codes import Severity as DriftSeverity
from gpuclusters.core.finding import Level
from gpuclusters.drift.kinds import KINDS as DRIFT
from gpuclusters.errors import source
from gpuclusters.errors.entry import Category, Entry
from gpuclusters.fabric.answers import CODES, id_of
from gpuclusters.policy.rules import RULES
from gpuclusters.preflight.decide import AREA, WARNINGS

_DOCTOR = ("failure", "warning")


def fabric() -> Iterator[Entry]:
    """Answers of the fabric manager that end a step."""
    for number, code in CODES.items():
        yield Entry(
            id_of(number),
            Category.STEP,
            (f"The fabric manager answered {number}: {code.meaning}.",),
            (code.remedy,),
            place="caas",
            source="NVIDIA, nv_fm_types.h: fmReturn",
        )
    yield Entry(
        id_of(-1000),
        Category.STEP,
        ("The fabric manager answered with a number that its documentation does not have.",),
        ("read the fabric manager's log in the service VM",),
        place="caas",
    )


def drift() -> Iterator[Entry]:
    """What is not as it was declared."""
    for kind in DRIFT.values():
        if kind.id in codes.listed():
            continue
        do = re.sub(r"\{\w+\}", source.GAP, kind.do)
        yield Entry(
            kind.id,
            Category.DRIFT,
            (f"{kind.group}: {kind.title}.",),
            (do or "`gpu-clusters up --refresh` puts it back.",),
            warning=kind.severity is not DriftSeverity.CRITICAL,
        )


def listed() -> Iterator[Entry]:
    """Codes of `core/codes`; those of rules say where the rule stands."""
    rules = {
        rule.code: (f"{kind.value}, row {rule.row}", rule)
        for kind, section in SECTIONS.items()
        for rule in section.rules
    }
    for id_, code in codes.listed().items():
        do = re.sub(r"\{\w+\}", source.GAP, code.do)
        place, rule = rules.get(id_, ("", None))
        category = Category.CONFIGURATION if rule or id_.startswith("config.") else Category.STEP
        warning = rule.level is Level.WARN if rule else code.severity is DriftSeverity.NOTICE
        if id_.startswith((AREA, "gpu-operator.")):
            category, warning = Category.PREFLIGHT, id_.removeprefix(AREA) in WARNINGS
        yield Entry(id_, category, (code.means,), (do,), (), place, code.source, warning)


def policy() -> Iterator[Entry]:
    """Rules of the policy pack; each has a page."""
    for rule in RULES:
        yield Entry(
            rule.id,
            Category.POLICY,
            (f"{rule.title[:1].upper()}{rule.title[1:]}.",),
            (f"docs/policy/{rule.id}.md says why, and what to do.",),
        )


def doctor() -> Iterator[Entry]:
    """What `doctor` finds: by the name that is written, else by the function that finds it."""
    from gpuclusters.errors.sites import functions_that_call

    for home in source.modules("gpuclusters.cli", r"\b(failure|warning)\("):
        if not home.name.rsplit(".", maxsplit=1)[-1].startswith("doctor"):
            continue
        for verb in _DOCTOR:
            for id_, call, scope in functions_that_call(home, verb):
                stated = source.argument(call, 3, "name")
                if len(call.args) > 3 and not stated:
                    continue  # an id that is passed on: of a fault, or of a finding of the preflight
                if source.GAP in stated:
                    continue
                yield Entry(
                    stated or id_,
                    Category.DOCTOR,
                    (
                        source.argument(call, 1, "text", scope)
                        or "What failed stands in the message.",
                    ),
                    (
                        source.argument(call, 2, "fix", scope)
                        or "The line below the finding says it.",
                    ),
                    place=home.name,
                    warning=verb == "warning",
                )
