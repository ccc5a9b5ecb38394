"""What a finding of the preflight is made of: cause, remedy, source, and when it is looked for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuclusters.domain.preflight_expects import Stage

PREFIX = "preflight."
BOTH = frozenset(Stage)
PREPARED = frozenset({Stage.PREPARED})
BARE = frozenset({Stage.BARE})


class Severity(StrEnum):
    """What a finding does to `up`."""

    FAILURE = "failure"
    """It stops, with nothing changed."""
    WARNING = "warning"
    """It goes on and says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One thing that can be wrong with a machine."""

    cause: str
    remedy: str
    source: str
    stages: frozenset[Stage] = BOTH
    severity: Severity = Severity.FAILURE
