"""Every code of a finding, with what it means and what to do: `codes/<area>.yaml`, each listed once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache, reduce
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from gpuclusters.core.model import LOADER

FOLDER = Path(__file__).with_name("codes")


class Severity(StrEnum):
    CRITICAL = "critical"
    """Isolation, a tenant or GPUs are hit, or may be."""
    WARNING = "warning"
    """Works for now, and is not what was declared."""
    NOTICE = "notice"
    """Worth to know."""

    @property
    def rank(self) -> int:
        """0 is worst."""
        return list(Severity).index(self)


VALUE = re.compile(r"\{([A-Za-z_]\w*(?:\.\w+)*)\}")
"""Where a value stands in what is said; `{gpu.count}` is an attribute of one."""


class Said(BaseModel):
    """How a fault is said; `{name}` stands for a value that is told with it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    problem: str = ""
    """What is wrong, where it is always said in the same words."""
    do: str = ""


class Code(Said):
    """What is told about a code by `gpu-clusters explain`."""

    means: str
    do: str = "Do what the message says."
    cases: Mapping[str, Said] = {}
    """Where it is said in several ways: each by its name, with what differs."""
    like: str = ""
    """A code of another cluster type that is said in the same words, except for cases of its own."""
    stays: str = "look on the host what changes it again, then run again"
    """What to do where `up` repairs it and it is there again, as the end of a sentence."""
    source: str = ""
    """Who says so, where it is a vendor's rule."""
    severity: Severity | None = None
    """How bad it is as drift; None where it is not found as drift."""


@cache
def _area(area: str) -> Mapping[str, Code]:
    rows = yaml.load((FOLDER / f"{area}.yaml").read_text("utf-8"), Loader=LOADER)  # noqa: S506
    return {f"{area}.{name}": Code.model_validate(row) for name, row in sorted(rows.items())}


@cache
def listed() -> Mapping[str, Code]:
    """All codes, by area and name."""
    areas = sorted(file.stem for file in FOLDER.glob("*.yaml"))
    return {code: row for area in areas for code, row in _area(area).items()}


def of(code: str) -> Code:
    """What is told about a code; reads no other area."""
    return _area(code.partition(".")[0])[code]


def said(
    code: str, case: str = "", values: Mapping[str, Any] | None = None, *, repaired: bool = False
) -> tuple[str, str]:
    """What is wrong and what to do, the latter as the end of a sentence, with these values in them.

    `repaired`: what to do where `up` repairs it and that did not help, unless the case says what.
    """
    row = of(code)
    if row.like and case not in row.cases and (case or not row.problem):
        return said(row.like, case, values, repaired=repaired)
    told = row.cases[case] if case else row
    problem = filled(told.problem or row.problem, values)
    if repaired and not (case and told.do):
        return problem, filled(row.stays, values)
    do = filled(told.do or row.do, values).removesuffix(".")
    return problem, do[:1].lower() + do[1:]


def filled(text: str, values: Mapping[str, Any] | None) -> str:
    """With values in their places; a place whose value is not told stays."""

    def value(place: re.Match[str]) -> str:
        name, *attributes = place[1].split(".")
        if name not in (values or {}):
            return place[0]
        known: Any = reduce(getattr, attributes, (values or {})[name])
        several = isinstance(known, list | tuple | dict)
        return ", ".join(map(str, known)) if several else str(known)

    return VALUE.sub(value, text)


def remedy(code: str) -> str:
    """What to do about a code, as the end of a sentence."""
    return said(code)[1]
