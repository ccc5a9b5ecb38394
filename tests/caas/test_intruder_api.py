"""What `verify` tries at the API without a right: refused by ours, and told where a door is open."""

import asyncio
import time
from typing import Any, cast

import pytest

from caas.api.gate import AnonymousLimit
from gpuclusters.container_api.client import ContainerApi
from gpuclusters.proof.checks import Outcome
from gpuclusters.tenancy.intrusion import Target, unauthenticated
from tests.caas.api.apikit import listening
from tests.caas.loops import in_loop

TRIED = [
    "read /metrics of the API",
    "read /healthz of the API",
    "read /readyz of the API",
    "ask without a token as often as it likes",
]
OPEN_DOOR = AnonymousLimit(time.monotonic, burst=10_000, burst_of_all=10_000)


@pytest.mark.attack(
    by="anyone on the network",
    tries="read the API's metrics without a right",
    stopped_by="metrics and probes have a port of their own, which no way in leads to",
)
@pytest.mark.parametrize(
    ("options", "at_will"), [({}, Outcome.PASSED), ({"anonymous": OPEN_DOOR}, Outcome.FAILED)]
)
@in_loop
async def test_who_has_no_right_gets_no_metrics_and_as_many_answers_as_the_api_allows(
    options: dict[str, Any], at_will: Outcome
) -> None:
    async with listening(options=options) as (api, port):
        target = Target(
            # The cluster's objects are not asked for.
            objects=cast(Any, None),
            accounts=cast(Any, None),
            node="hgx-01",
            api=ContainerApi(f"http://127.0.0.1:{port}"),
            tokens={},
            tenant_claim="tenant",
        )
        # Nor who has a token of a tenant; asked before the others have used up what an address may ask.
        for path in ("/metrics", "/healthz", "/readyz"):
            assert (await api.get("acme", path)).status_code == 404
        findings = await asyncio.to_thread(lambda: list(unauthenticated(target)))
        found = {finding.what: finding.outcome for finding in findings}
        assert found == {**dict.fromkeys(TRIED, Outcome.PASSED), TRIED[-1]: at_will}
