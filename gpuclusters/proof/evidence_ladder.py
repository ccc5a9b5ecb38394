"""Evidence of a rootless cluster: every rung of its ladder, from the driver of each host to the training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gpuclusters.proof.checks import Outcome
from gpuclusters.proof.evidence_proof import ProofEvidence
from gpuclusters.proof.ladder import STEPS, CheckLevel

KIND = "ladder"


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderEvidence(ProofEvidence):
    """All checks of one climb; `level` is the highest rung that was asked for, `R9`."""

    kind: ClassVar[str] = KIND

    @property
    def explained(self) -> Mapping[str, Any]:
        """What each rung asks, and when it holds."""
        return {
            "rungs": {
                rung.level: {"shows": step.what, "asked": step.asked, "holdsWhen": step.read}
                for rung, step in STEPS.items()
            }
        }

    def heading_of(self, level: str) -> str:
        """The rung with what it asks."""
        step = next((step for rung, step in STEPS.items() if rung.level == level), None)
        return level if step is None else f"{level}: {step.what} ({step.asked})"


def faults(document: Mapping[str, Any]) -> list[str]:
    """What keeps the content of a document from showing the ladder; empty if it does."""
    entries = document.get("checks")
    rows = [row for row in entries if isinstance(row, Mapping)] if isinstance(entries, list) else []
    bad = [row for row in rows if row.get("outcome") != Outcome.PASSED]
    if bad or not rows:
        return [f"does not show that the ladder holds: {len(bad)} of {len(rows)} checks not passed"]
    highest = next((rung for rung in CheckLevel if rung.level == document.get("level")), None)
    if highest is None:
        return [f"names no rung ({document.get('level')!r})"]
    climbed = {str(row.get("level")) for row in rows}
    missing = [rung.level for rung in CheckLevel if rung <= highest and rung.level not in climbed]
    if missing:
        return [f"does not show {highest.level}: no check of {', '.join(missing)} is in it"]
    return []


def headline(document: Mapping[str, Any]) -> str:
    """What a document without faults shows."""
    return (
        f"that the ladder of {document['cluster']} held on {document['at']} up to "
        f"{document['level']}: {len(document['checks'])} checks, all passed"
    )
