"""One step before the rules that say what it takes down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from gpuclusters.review.fleet import host_of
from gpuclusters.review.plan import Action, Plan, Resource, Step
from gpuclusters.review.text import listed


class Weight(IntEnum):
    """How much a reviewer has to mind it."""

    NONE = 0
    LOOK = 1
    """Something pauses, or is made anew without a loss."""
    DANGER = 2
    """Containers end, data or isolation is lost, or a machine leaves."""


@dataclass(frozen=True, slots=True)
class Impact:
    """What one step does to those who use the cluster."""

    weight: Weight
    step: Step
    says: str
    """A sentence; names in it are not escaped yet."""
    machine: str = ""
    gpus: int = 0
    """GPUs of which containers are taken down."""
    tenant: str = ""
    """The tenant that goes."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the cluster is before the plan."""

    plan: Plan
    tenants: tuple[str, ...]
    gpus_by_machine: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Case:
    """A step that changes or removes what was there."""

    facts: Facts
    step: Step
    old: Resource
    new: Resource | None
    """None where it goes; where it is made anew, what comes."""

    @property
    def machine(self) -> str:
        """The machine that it is on, or else its own name."""
        return host_of(self.facts.plan, self.old) or self.step.name

    @property
    def gpus(self) -> int:
        """GPUs of that machine; 0 if the plan does not tell."""
        return self.facts.gpus_by_machine.get(self.machine, 0)

    @property
    def users(self) -> str:
        """Whose containers may run there, as part of a sentence."""
        return f" of {listed(list(self.facts.tenants))}" if self.facts.tenants else ""


Rule: TypeAlias = Callable[[Case], Impact | None]


def verb(step: Step) -> str:
    """What becomes of it, in words."""
    if step.action is Action.DELETE:
        return "is deleted"
    why = listed(sorted(set(step.replace_reasons)))
    because = f", because {why} cannot change in place" if why else ""
    return f"is deleted and made anew{because}"
