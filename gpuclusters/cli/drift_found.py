"""What one part of the look found, could not see, and looked at."""

from __future__ import annotations

from dataclasses import dataclass

from gpuclusters.drift.finding import Finding, Unseen
from gpuclusters.drift.report import Looked


@dataclass(frozen=True, slots=True)
class Found:
    """All of it."""

    findings: tuple[Finding, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    looked: tuple[Looked, ...] = ()

    def joined(self, other: Found) -> Found:
        """Both."""
        return Found(
            self.findings + other.findings,
            self.unseen + other.unseen,
            self.looked + other.looked,
        )
