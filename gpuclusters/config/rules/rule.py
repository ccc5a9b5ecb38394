"""What a rule is: a row of the list of failures, the sections it reads, and a pure function over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpuclusters.config.fault import Flaw
from gpuclusters.domain.error_id import kebab


class Severity(StrEnum):
    """Whether a finding stops the program."""

    ERROR = "error"
    WARNING = "warning"


Check = Callable[[Any], Iterable[Flaw]]
"""From the section of the cluster type that the rule belongs to."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. It runs only where it can see what it needs."""

    row: int
    """Row of the table in docs/configuration.md; 0 is what holds for every cluster."""
    check: Check
    needs: frozenset[str]
    """Keys of the section that must be right as a whole."""
    each: frozenset[str]
    """Lists whose items it looks at one by one; items that could not be read may be missing."""
    severity: Severity

    @property
    def name(self) -> str:
        """Name of its function."""
        return self.check.__name__

    @property
    def id(self) -> str:
        """As it is printed with every flaw that it finds; cluster types may share a rule."""
        return kebab(self.name)

    @property
    def summary(self) -> str:
        """What it says, in one line."""
        return (self.check.__doc__ or "").strip().splitlines()[0]

    def can_run(self, broken: frozenset[str], cut: frozenset[str]) -> bool:
        """Whether all it needs could be read."""
        return not (self.needs & broken) and not (self.each & cut)


def rule(
    row: int,
    *,
    needs: Iterable[str] = (),
    each: Iterable[str] = (),
    severity: Severity = Severity.ERROR,
) -> Callable[[Check], Rule]:
    """Make a rule of a function that gives flaws. Keys are the field names of the section's model."""

    def make(check: Check) -> Rule:
        return Rule(row, check, frozenset(needs), frozenset(each), severity)

    return make
