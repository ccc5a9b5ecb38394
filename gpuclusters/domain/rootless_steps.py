"""The steps that prepare a host for rootless Docker, in which order, and what a missing thing is. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """What is done, in this order."""

    ACCOUNT = "account"
    PACKAGES = "packages"
    FILES = "files"
    HOLD = "hold"
    ROOTFUL = "rootful"
    IDS = "ids"
    LINGER = "linger"
    MANAGER = "manager"
    RUNTIME = "runtime"
    CDI = "cdi"
    CONFIGURATION = "configuration"
    SETUP = "setup"
    RESTART = "restart"


OF_THE_ACCOUNT = frozenset({Step.CONFIGURATION, Step.SETUP, Step.RESTART})
"""What the account does itself, without root."""
ROUNDS: tuple[frozenset[Step], ...] = (
    frozenset({Step.ACCOUNT, Step.PACKAGES, Step.FILES, Step.ROOTFUL}),
    frozenset({Step.HOLD, Step.IDS, Step.LINGER, Step.RUNTIME, Step.CDI}),
    frozenset({Step.MANAGER}),
    frozenset({Step.CONFIGURATION, Step.SETUP}),
    frozenset({Step.RESTART}),
)
"""After each the host is looked at again: what a step brings decides what the next ones find."""


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing."""

    step: Step
    problem: str
    command: str
    """What root types; empty where the account does it."""
    stays: str = ""
    """What to look for when it was done and is still so."""
