"""What happens to a GPU between two tenants."""

from __future__ import annotations

from enum import StrEnum


class RecyclePolicy(StrEnum):
    """How much is done, and proven, before a GPU is free again."""

    FULL = "full"
    """Reset, clear memory, compare firmware and knobs with the golden set."""
    RESET_ONLY = "reset-only"
    """Reset and clear memory; firmware is not compared."""
    QUARANTINE_ALWAYS = "quarantine-always"
    """Reset and clear memory, then wait for an operator, whatever the result."""
