"""A container's boot is measured from its lease, step by step, once."""

from typing import Any

import pytest

from caas import metrics
from caas.controllers.lease_pods import BootTimes
from gpuclusters.container_api.container import LEASE_ANNOTATION, LEASE_GATE
from tests.fixtures.waiting import Clock

RESOURCE = "nvidia.com/pgpu"


def pod(
    uid: str,
    *,
    gpus: str,
    gated: bool = False,
    leased: bool = True,
    conditions: tuple[str, ...] = (),
    state: dict[str, Any] | None = None,
) -> dict[str, Any]:
    containers = [{"resources": {"limits": {RESOURCE: gpus}}}]
    return {
        "metadata": {"uid": uid, "annotations": {LEASE_ANNOTATION: "hgx-01/3"} if leased else {}},
        "spec": {
            "containers": containers,
            "schedulingGates": [{"name": LEASE_GATE}] if gated else [],
        },
        "status": {
            "conditions": [{"type": kind, "status": "True"} for kind in conditions],
            "containerStatuses": [{"state": state}] if state else [],
        },
    }


def measured(gpus: str) -> dict[str, tuple[float, float]]:
    """Count and sum of each step."""
    found = {}
    for step in ("scheduled", "sandbox", "started"):
        labels = {"phase": step, "gpus": gpus}
        count = metrics.CONTROLLERS.get_sample_value("gpu_clusters_boot_seconds_count", labels)
        total = metrics.CONTROLLERS.get_sample_value("gpu_clusters_boot_seconds_sum", labels)
        if count is not None and total is not None:
            found[step] = (count, total)
    return found


def test_each_step_is_measured_once_from_the_lease() -> None:
    clock = Clock(100.0)
    times = BootTimes(RESOURCE, clock)
    times.observe(pod("a", gpus="21", gated=True, leased=False))
    clock.now = 500.0
    times.observe(pod("a", gpus="21"))
    assert measured("21") == {}
    clock.now = 502.0
    times.observe(pod("a", gpus="21", conditions=("PodScheduled",)))
    clock.now = 540.0
    times.observe(pod("a", gpus="21", conditions=("PodScheduled", "PodReadyToStartContainers")))
    clock.now = 560.0
    running = pod("a", gpus="21", conditions=("PodScheduled",), state={"running": {}})
    times.observe(running)
    clock.now = 900.0
    times.observe(running)
    assert measured("21") == {"scheduled": (1, 2.0), "sandbox": (1, 40.0), "started": (1, 60.0)}


def test_steps_that_are_seen_together_are_all_measured() -> None:
    clock = Clock(100.0)
    times = BootTimes(RESOURCE, clock)
    times.observe(pod("b", gpus="22", gated=True, leased=False))
    times.observe(pod("b", gpus="22"))
    clock.now += 5
    ended = {"terminated": {"exitCode": 1}}
    times.observe(pod("b", gpus="22", conditions=("PodScheduled",), state=ended))
    assert measured("22") == dict.fromkeys(("scheduled", "sandbox", "started"), (1, 5.0))


@pytest.mark.parametrize("leased", [True, False])
def test_what_was_not_seen_at_the_gate_or_has_no_lease_is_not_measured(*, leased: bool) -> None:
    times = BootTimes(RESOURCE, Clock(100.0))
    if not leased:
        times.observe(pod("c", gpus="23", gated=True, leased=False))
    running = pod(
        "c", gpus="23", leased=leased, conditions=("PodScheduled",), state={"running": {}}
    )
    times.observe(running)
    assert measured("23") == {}


def test_a_pod_that_is_gone_is_forgotten() -> None:
    times = BootTimes(RESOURCE, Clock(100.0))
    times.observe(pod("d", gpus="24", gated=True, leased=False))
    times.observe(pod("d", gpus="24"))
    times.forget("d")
    times.observe(pod("d", gpus="24", state={"running": {}}))
    assert measured("24") == {}
