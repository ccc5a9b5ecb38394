"""Each program exposes its own metrics, all of them documented and named by one scheme."""

import re

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from caas import metrics
from gpuclusters.core import codes
from gpuclusters.lease.model import QuarantineReason

PROGRAMS = {
    "controllers": metrics.CONTROLLERS,
    "api": metrics.API,
    "device plugin": metrics.DEVICE_PLUGIN,
}


def ours(registry: CollectorRegistry) -> dict[str, str]:
    """The documentation of our metrics by name."""
    text = metrics.exposition(registry)[0].decode()
    families = text_string_to_metric_families(text)
    return {f.name: f.documentation for f in families if f.name.startswith("gpu_clusters_")}


def test_no_two_programs_export_a_metric_of_one_name() -> None:
    names = [name for registry in PROGRAMS.values() for name in ours(registry)]
    assert len(names) == len(set(names)) > 0


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_exposition_is_prometheus_text_which_says_what_each_metric_is(program: str) -> None:
    body, content_type = metrics.exposition(PROGRAMS[program])
    assert content_type.startswith("text/plain; version=")
    assert b"process_cpu_seconds_total" in body
    assert b"_created" not in body
    for name, documentation in ours(PROGRAMS[program]).items():
        assert re.fullmatch(r"gpu_clusters_[a-z_]+", name)
        assert documentation.endswith("."), name


def test_a_boot_of_half_an_hour_and_a_request_of_milliseconds_fall_into_buckets() -> None:
    # Of a size and a route that nothing else in this process observes.
    boots = {"phase": "started", "gpus": "64"}
    requests = {"method": "GET", "route": "/v1/buckets"}
    metrics.BOOT_SECONDS.labels(**boots).observe(25 * 60)
    metrics.API_REQUEST_SECONDS.labels(**requests).observe(0.004)
    assert value(metrics.CONTROLLERS, "boot_seconds_bucket", {**boots, "le": "1800.0"}) == 1
    assert value(metrics.CONTROLLERS, "boot_seconds_bucket", {**boots, "le": "900.0"}) == 0
    assert value(metrics.API, "api_request_seconds_bucket", {**requests, "le": "0.005"}) == 1


def test_what_alerts_count_begins_at_zero_so_that_the_first_event_is_seen() -> None:
    for reason in QuarantineReason:
        assert value(metrics.CONTROLLERS, "quarantined_total", {"reason": reason}) is not None
    for result in ("granted", "refused", "error"):
        labels = {"result": result}
        found = value(metrics.DEVICE_PLUGIN, "device_plugin_allocations_total", labels)
        assert found is not None


def value(registry: CollectorRegistry, name: str, labels: dict[str, str]) -> float | None:
    return registry.get_sample_value(f"gpu_clusters_{name}", labels)


def test_every_reason_of_a_quarantine_has_its_code() -> None:
    stated = {code for code in codes.listed() if code.startswith("lease.")}
    assert {reason.code for reason in QuarantineReason} == stated
