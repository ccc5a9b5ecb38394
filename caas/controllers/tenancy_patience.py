"""How long each tenancy has been worked on as it is now."""

from __future__ import annotations

import time
from typing import Any


class Patience:
    """Counts from the first look at a tenancy as it is asked for, not from when it was asked for.

    Of a thousand that are asked for at once the last is begun late; what it lacks then is as new as what
    the first lacked, and no reason to write a status that is wrong a moment later.
    """

    def __init__(self) -> None:
        self._begun: dict[str, tuple[tuple[str, int], float]] = {}

    def begin(self, tenancy: dict[str, Any]) -> None:
        """It is looked at; does nothing if that was so before."""
        metadata = tenancy["metadata"]
        asked = metadata["uid"], metadata["generation"]
        if self._begun.get(metadata["name"], (None, 0.0))[0] != asked:
            self._begun[metadata["name"]] = (asked, time.monotonic())

    def waited(self, name: str) -> float:
        """Seconds since it was begun."""
        return time.monotonic() - self._begun[name][1]

    def forget(self, name: str) -> None:
        """It is gone."""
        self._begun.pop(name, None)
