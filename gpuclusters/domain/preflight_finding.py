"""One finding, and what a check gets to see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from gpuclusters.domain.preflight_catalogue import KINDS
from gpuclusters.domain.preflight_expects import Expects, Stage
from gpuclusters.domain.preflight_facts import HostFacts, PciFact
from gpuclusters.domain.preflight_kind import PREFIX, Kind


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with one machine."""

    name: str
    """Its place in the catalogue, like `iommu-off`."""
    read: str
    """What was read, and of what."""
    expected: str

    @property
    def kind(self) -> Kind:
        """Its meaning, remedy and source."""
        return KINDS[self.name]

    @property
    def id(self) -> str:
        """Its name as users see it, like `preflight.iommu-off`."""
        return PREFIX + self.name

    @property
    def line(self) -> str:
        """All in one line."""
        return f"{self.id}: {self.read}; expected {self.expected}; {self.kind.remedy}"

    @property
    def text(self) -> str:
        """All, in a few lines for people."""
        return (
            f"  {self.id}: {self.read}\n"
            f"    expected: {self.expected}\n"
            f"    cause: {self.kind.cause}\n"
            f"    do: {self.kind.remedy}\n"
            f"    source: {self.kind.source}"
        )


@dataclass(frozen=True, slots=True)
class Look:
    """One machine under examination."""

    facts: HostFacts
    expects: Expects
    stage: Stage

    def configured(self) -> Iterator[PciFact]:
        """The functions of the configuration that are on the machine."""
        for address in self.expects.functions:
            if address in self.facts.functions:
                yield self.facts.functions[address]

    def gpus(self) -> Iterator[PciFact]:
        """The GPUs of the configuration that are on the machine."""
        for address in self.expects.gpus.values():
            if address in self.facts.functions:
                yield self.facts.functions[address]


Check: TypeAlias = Callable[[Look], Iterator[Finding]]
