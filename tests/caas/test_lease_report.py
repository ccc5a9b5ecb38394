"""The gauge of leases counts every GPU once, also when a host's task begins anew."""

from __future__ import annotations

from typing import cast

from caas import metrics
from caas.controllers.controller import Recorder
from caas.controllers.lease_book import LeaseReport
from gpuclusters.lease.model import Phase

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
