"""How often a tenant may ask: a bucket of tokens each, filled at a steady rate."""

from __future__ import annotations

import math
from collections.abc import Callable

from caas.api.problems import Problem, ProblemError, retry_after

_MANY = 10_000


class RateLimit:
    """Counts requests per tenant. Of several copies of this program each counts for itself."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        self._rate = per_second
        self._burst = float(burst)
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def spend(self, tenant: str) -> None:
        """Take one token.

        Raises:
            ProblemError: there is none; `Retry-After` says when there will be.
        """
        now = self._clock()
        tokens, then = self._buckets.get(tenant, (self._burst, now))
        tokens = min(self._burst, tokens + max(0.0, now - then) * self._rate)
        if tokens < 1:
            self._buckets[tenant] = (tokens, now)
            wait = math.ceil((1 - tokens) / self._rate)
            raise self._refusal(wait)
        self._buckets[tenant] = (tokens - 1, now)
        if len(self._buckets) > _MANY:
            self._forget(now)

    def _forget(self, now: float) -> None:
        """A full bucket is the same as none."""
        full = self._burst / self._rate
        self._buckets = {
            tenant: (tokens, then)
            for tenant, (tokens, then) in self._buckets.items()
            if now - then < full
        }

    def _refusal(self, seconds: int) -> ProblemError:
        return retry_after(
            Problem.RATE,
            f"at most {self._rate:g} requests per second, {self._burst:g} at once; "
            f"try again in {seconds} s",
            seconds,
        )
