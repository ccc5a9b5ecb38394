"""A container's boot is measured from its lease, step by step, once."""

from typing import Any

import pytest

from caas import metrics
from caas.controllers.lease_pods import BootTimes
from tests.caas.pods import going
from tests.fixtures.tenancies import GPU
from tests.fixtures.waiting import Clock

GATED = going(gpus="23", gated=True, leased=False)


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
    times = BootTimes(GPU, clock)
    times.observe(going(gpus="21", gated=True, leased=False))
    clock.now = 500.0
    times.observe(going(gpus="21"))
    assert measured("21") == {}
    clock.now = 502.0
    times.observe(going("PodScheduled", gpus="21"))
    clock.now = 540.0
    times.observe(going("PodScheduled", "PodReadyToStartContainers", gpus="21"))
    clock.now = 560.0
    running = going("PodScheduled", gpus="21", state="running")
    times.observe(running)
    clock.now = 900.0
    times.observe(running)
    assert measured("21") == {"scheduled": (1, 2.0), "sandbox": (1, 40.0), "started": (1, 60.0)}


def test_steps_that_are_seen_together_are_all_measured() -> None:
    clock = Clock(100.0)
    times = BootTimes(GPU, clock)
    times.observe(going(gpus="22", gated=True, leased=False))
    times.observe(going(gpus="22"))
    clock.now += 5
    times.observe(going("PodScheduled", gpus="22", state="terminated"))
    assert measured("22") == dict.fromkeys(("scheduled", "sandbox", "started"), (1, 5.0))


@pytest.mark.parametrize(
    ("seen", "last"),
    [
        ([], going("PodScheduled", gpus="23", state="running")),
        ([GATED], going("PodScheduled", gpus="23", leased=False, state="running")),
        ([GATED, going(gpus="23"), None], going(gpus="23", state="running")),
    ],
    ids=["not seen at the gate", "no lease", "gone meanwhile"],
)
def test_what_has_no_known_lease_is_not_measured(
    seen: list[dict[str, Any] | None], last: dict[str, Any]
) -> None:
    times = BootTimes(GPU, Clock(100.0))
    for body in seen:
        times.observe(body) if body else times.forget("u")
    times.observe(last)
    assert measured("23") == {}
