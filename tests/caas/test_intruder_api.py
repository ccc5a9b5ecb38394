"""What `verify` tries at the API without a right: refused by ours, and told where a door is open."""

import asyncio
import time
from typing import Any, cast

from caas.api.gate import AnonymousLimit
from gpuclusters.container_api.client import ContainerApi
from gpuclusters.proof.checks import Outcome
from gpuclusters.tenancy.intrusion import Target, unauthenticated
from tests.caas.api.apikit import listening

TRIED = [
    "read /metrics of the API",
    "read /healthz of the API",
    "read /readyz of the API",
    "ask without a token as often as it likes",
]


def tried(**options: Any) -> dict[str, Outcome]:
    """What came of each attempt against an API with these options."""
    found: dict[str, Outcome] = {}

    async def act() -> None:
        async with listening(options=options) as (_, port):
            api = ContainerApi(f"http://127.0.0.1:{port}")
            # The cluster's objects are not asked for.
            target = Target(
                objects=cast(Any, None),
                accounts=cast(Any, None),
                node="hgx-01",
                api=api,
                tokens={},
                tenant_claim="tenant",
            )
            findings = await asyncio.to_thread(lambda: list(unauthenticated(target)))
            found.update({finding.what: finding.outcome for finding in findings})

    asyncio.run(act())
    return found


def test_who_has_no_right_gets_neither_metrics_nor_as_many_answers_as_it_likes() -> None:
    assert tried() == dict.fromkeys(TRIED, Outcome.PASSED)


def test_an_api_that_limits_nobody_is_found_out() -> None:
    open_door = AnonymousLimit(time.monotonic, burst=10_000, burst_of_all=10_000)
    assert tried(anonymous=open_door) == {
        **dict.fromkeys(TRIED, Outcome.PASSED),
        TRIED[-1]: Outcome.FAILED,
    }
