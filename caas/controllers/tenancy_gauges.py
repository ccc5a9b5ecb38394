"""How many tenancies are ready, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from caas import metrics
from gpuclusters.tenancy import proof as tenancy_proof

Tenancy = Mapping[str, Any]


class Gauges:
    """Of the leader; begins with nothing and leaves nothing behind."""

    def __init__(self) -> None:
        self._judged: set[str] = set()
        self._ready: set[str] = set()
        self._asked: dict[str, tuple[int, float]] = {}

    def asked(self, tenancy: Tenancy) -> None:
        """It was made or its spec changed."""
        name, generation = tenancy["metadata"]["name"], tenancy["metadata"]["generation"]
        if tenancy_proof.ready(tenancy):
            return
        if self._asked.get(name, (0, 0.0))[0] != generation:
            self._asked[name] = (generation, time.monotonic())

    def judged(self, tenancy: Tenancy, *, ready: bool) -> None:
        """It was found ready or not."""
        name, generation = tenancy["metadata"]["name"], tenancy["metadata"]["generation"]
        self._judged.add(name)
        (self._ready.add if ready else self._ready.discard)(name)
        if ready and self._asked.get(name, (0, 0.0))[0] == generation:
            _, since = self._asked.pop(name)
            metrics.TENANCY_READY_SECONDS.observe(time.monotonic() - since)
        self._show()

    def forget(self, name: str) -> None:
        """It is gone."""
        self._judged.discard(name)
        self._ready.discard(name)
        self._asked.pop(name, None)
        self._show()

    def clear(self) -> None:
        """This program leads no more."""
        metrics.TENANCIES.clear()

    def _show(self) -> None:
        metrics.TENANCIES.labels("true").set(len(self._ready))
        metrics.TENANCIES.labels("false").set(len(self._judged) - len(self._ready))
