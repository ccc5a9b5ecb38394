"""Why a part of a tenant's isolation is not proven."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """`reason` is one word for machines, `message` a sentence for people."""

    reason: str
    message: str


def absent(what: str) -> Fault:
    """It does not exist."""
    return Fault("Missing", f"{what} does not exist")
