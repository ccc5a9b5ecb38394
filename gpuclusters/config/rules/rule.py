"""What a rule is: a pure function over a section, and the code of the fault that it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from gpuclusters.core.codes import listed
from gpuclusters.core.finding import Finding, Level

Check = Callable[[Any], Iterable[Finding]]
"""From the section of the cluster type that the rule belongs to."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. It runs as far as what it reads could be read."""

    row: int
    """Row of the table in docs/configuration.md; 0 is what holds for every cluster."""
    code: str
    """Of the fault; `core/codes` says what it means."""
    find: Check
    each: tuple[str, ...]
    """Lists whose items it looks at one by one: what is wrong with one says nothing about the others."""
    level: Level

    @property
    def name(self) -> str:
        """Name of its function."""
        return self.find.__name__

    @property
    def means(self) -> str:
        """What it asks for."""
        return listed()[self.code].means

    def check(self, section: Any) -> Iterator[Finding]:
        """What is wrong by this rule."""
        for found in self.find(section):
            yield replace(found, code=self.code, level=self.level)


def rule(
    row: int, code: str, *, each: Iterable[str] = (), level: Level = Level.BLOCK
) -> Callable[[Check], Rule]:
    """Make a rule of a function. `each` are field names of the section's model."""

    def make(find: Check) -> Rule:
        return Rule(row, code, find, tuple(each), level)

    return make


def of(*modules: ModuleType) -> tuple[Rule, ...]:
    """The rules of modules, each once, as they stand there."""
    found = [one for module in modules for one in vars(module).values() if isinstance(one, Rule)]
    return tuple(dict.fromkeys(found))
