"""Leases read from objects and written back: deadlines under clocks that jump, objects that are old."""

from dataclasses import replace
from typing import Any, cast

import pytest

from caas import metrics
from caas.controllers.controller import Recorder
from caas.controllers.lease_book import LeaseBook, LeaseReport
from gpuclusters.config.tenants import Deadlines
from gpuclusters.device_plugin.decide import HELD_BY_ANOTHER, KUBELET_AGREES
from gpuclusters.lease.board import Limits
from gpuclusters.lease.model import ConditionType, GPULeaseSpec, Phase, lease_object
from gpuclusters.lease.plan import Change
from tests.fixtures.waiting import Clock

LIMITS = Limits(resetting=100, scrubbing=900)
START = 1_800_000_000.0


def resetting(wall: Clock) -> dict[str, Any]:
    """The object of a GPU that has just begun its first cycle."""
    body = lease_object(GPULeaseSpec(node="n", module=1, pci="0000:0f:00.0", device="1"))
    body["metadata"] |= {"uid": "u", "resourceVersion": "10", "generation": 1}
    return LeaseBook(LIMITS, wall).first(body)


def newer(body: dict[str, Any], version: str) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], "resourceVersion": version}}


@pytest.mark.parametrize(
    ("passed", "left"),
    [(40, 60.0), (1_000_000, 25.0), (-1_000_000, 100.0)],
    ids=["what is left", "a quarter at least", "the whole at most"],
)
def test_a_phase_begun_by_another_gets_what_is_left_whoever_sets_the_clock(
    passed: float, left: float
) -> None:
    wall = Clock(START)
    body = resetting(wall)
    wall.now += passed
    lease = LeaseBook(LIMITS, wall).offer(body, now=5.0)
    assert lease is not None
    assert lease.deadline == 5.0 + left


def test_a_deadline_stays_while_others_write_to_the_same_stay() -> None:
    wall = Clock(START)
    book = LeaseBook(LIMITS, wall)
    body = resetting(wall)
    first = book.offer(body, now=5.0)
    wall.now += 1_000_000
    again = book.offer(newer(body, "11"), now=30.0)
    assert first is not None
    assert again is not None
    assert again.deadline == first.deadline


def test_an_older_object_is_not_taken_for_what_is() -> None:
    wall = Clock(START)
    book = LeaseBook(LIMITS, wall)
    body = resetting(wall)
    assert book.offer(newer(body, "11"), now=0.0) is not None
    assert book.offer(newer(body, "9"), now=0.0) is None


def test_what_is_written_is_read_again_with_the_time_of_each_condition() -> None:
    wall = Clock(START)
    book = LeaseBook(LIMITS, wall)
    lease = book.offer(resetting(wall), now=0.0)
    assert lease is not None
    wall.now += 60
    after = replace(
        lease, phase=Phase.SCRUBBING, deadline=900.0, shown=frozenset({ConditionType.RESET_DONE})
    )
    stored = book.next(Change(lease, after, "the GPU was reset"), now=0.0)
    status = stored["status"]
    assert status["since"] == "2027-01-15T08:01:00.000Z"
    assert status["deadline"] == "2027-01-15T08:16:00.000Z"
    times = {c["type"]: (c["status"], c["lastTransitionTime"]) for c in status["conditions"]}
    assert times["ResetDone"] == ("True", "2027-01-15T08:01:00.000Z")
    assert times["MemoryCleared"] == ("False", "2027-01-15T08:00:00.000Z")
    again = book.offer(newer(stored, "11"), now=1.0)
    assert again == after


def test_a_lease_says_who_had_the_gpu_last_and_that_the_kubelet_gave_it_to_another_pod() -> None:
    wall = Clock(START)
    body = resetting(wall)
    body["status"]["lastTenant"] = "acme"
    said = {"type": KUBELET_AGREES, "status": "False", "reason": HELD_BY_ANOTHER}
    body["status"]["conditions"].append(said)
    book = LeaseBook(LIMITS, wall)
    lease = book.offer(body, now=5.0)
    assert lease is not None
    assert lease.disputed
    assert lease.last_tenant == "acme"
    closed = replace(lease, phase=Phase.QUARANTINED, deadline=None, reason="HeldByAnotherPod")
    status = book.next(Change(lease, closed, ""), now=6.0)["status"]
    assert status["lastTenant"] == "acme"
    (said,) = [c for c in status["conditions"] if c["type"] == KUBELET_AGREES]
    assert said["status"] == "False"
    freed = replace(lease, phase=Phase.FREE, deadline=None, last_tenant="")
    assert "lastTenant" not in book.next(Change(lease, freed, ""), now=6.0)["status"]


def test_the_configuration_has_the_deadlines_that_the_machine_has_by_itself() -> None:
    stated = Deadlines().model_dump()
    assert {key.removesuffix("_seconds"): value for key, value in stated.items()} == (
        Limits().model_dump()
    )


HOST = "hgx-of-the-report"


def counted() -> dict[str, float]:
    found = {}
    for phase in Phase:
        labels = {"phase": phase.value, "host": HOST}
        value = metrics.CONTROLLERS.get_sample_value("gpu_clusters_leases", labels)
        if value:
            found[phase.value] = value
    return found


def test_a_gpu_is_counted_once_whatever_an_ended_task_still_sees() -> None:
    nobody = cast(Recorder, None)
    before = LeaseReport(HOST, nobody)
    for module in (1, 2):
        before.seen(module, Phase.FREE)
    before.seen(2, Phase.LEASED)
    assert counted() == {"Free": 1, "Leased": 1}
    before.close()
    assert counted() == {}
    before.seen(1, Phase.RESERVED)
    assert counted() == {}, "its host has another report by now"
    after = LeaseReport(HOST, nobody)
    for module in (1, 2):
        after.seen(module, Phase.LEASED)
    assert counted() == {"Leased": 2}
    after.seen(1, None)
    assert counted() == {"Leased": 1}
    after.close()
