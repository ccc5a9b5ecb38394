"""Every code of a finding, with what it means and what to do: `codes/<area>.yaml`, each listed once."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

FOLDER = Path(__file__).with_name("codes")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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


class Code(BaseModel):
    """What is told about a code by `gpu-clusters explain` and docs/errors.md."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    means: str
    do: str = "Do what the message says."
    """May name `{where}` and `{what}`."""
    stays: str = "look on the host what changes it again, then run again"
    """What to do where `up` repairs it and it is there again, as the end of a sentence."""
    source: str = ""
    """Who says so, where it is a vendor's rule."""
    severity: Severity | None = None
    """How bad it is as drift; None where it is not found as drift."""


@cache
def listed() -> Mapping[str, Code]:
    """All codes, by area and name."""
    found: dict[str, Code] = {}
    for file in sorted(FOLDER.glob("*.yaml")):
        rows: Mapping[str, object] = yaml.load(file.read_text("utf-8"), Loader=_LOADER)  # noqa: S506
        for name, row in sorted(rows.items()):
            found[f"{file.stem}.{name}"] = Code.model_validate(row)
    return found


def remedy(code: str) -> str:
    """What to do about a code, as the end of a sentence."""
    do = listed()[code].do.removesuffix(".")
    return do[0].lower() + do[1:]


def stays(code: str) -> str:
    """What to do where repairing did not help."""
    return listed()[code].stays
