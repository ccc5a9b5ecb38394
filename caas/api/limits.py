"""How often callers may ask: a bucket of tokens each, filled at a steady rate."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

from caas.api.problems import Problem, ProblemError, retry_after

_MANY = 10_000
"""Buckets that are remembered. The one that was used longest ago is forgotten first, and then full again."""


class RateLimit:
    """Counts requests per caller. Of several copies of this program each counts for itself."""

    def __init__(
        self, per_second: float, burst: int, clock: Callable[[], float], *, of: str = "requests"
    ) -> None:
        self._rate = per_second
        self._burst = float(burst)
        self._clock = clock
        self._of = of
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def spend(self, caller: str) -> None:
        """Take one token.

        Raises:
            ProblemError: there is none; `Retry-After` says when there will be.
        """
        now = self._clock()
        tokens, then = self._buckets.get(caller, (self._burst, now))
        tokens = min(self._burst, tokens + max(0.0, now - then) * self._rate)
        left = tokens - 1 if tokens >= 1 else tokens
        self._buckets[caller] = (left, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > _MANY:
            self._buckets.popitem(last=False)
        if tokens < 1:
            raise self._refusal(math.ceil((1 - tokens) / self._rate))

    def _refusal(self, seconds: int) -> ProblemError:
        return retry_after(
            Problem.RATE,
            f"at most {self._rate:g} {self._of} per second, {self._burst:g} at once; "
            f"try again in {seconds} s",
            seconds,
        )


class StrangerLimit:
    """Bounds what is asked without a valid token: by address, and by all together.

    Somebody with a valid token is never held up by strangers, also where they share an address.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        per_second: float = 10.0,
        burst: int = 50,
        per_second_of_all: float = 200.0,
        burst_of_all: int = 1000,
    ) -> None:
        what = "requests without a valid token"
        self._each = RateLimit(per_second, burst, clock, of=f"{what} from one address")
        self._all = RateLimit(per_second_of_all, burst_of_all, clock, of=what)

    def spend(self, address: str) -> None:
        """Take one token of the address, and one of all.

        Raises:
            ProblemError: there is none. The connection ends with that answer: the next costs a handshake.
        """
        try:
            self._each.spend(address)
            self._all.spend("")
        except ProblemError as error:
            headers = {**error.headers, "Connection": "close"}
            raise ProblemError(error.problem, error.detail, headers=headers) from None
