"""The metrics of the programs in the cluster, as `metrics.yaml` has them; each program exposes its own.

The dashboard and the alert rules are tested against this module. Gauges of the controllers describe what the
leading one sees; one that stops leading ends.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from gpuclusters.lease.model import QuarantineReason

Metric = TypeVar("Metric", Counter, Gauge, Histogram)

# A creation time per series, for which nothing asks.
disable_created_metrics()  # type: ignore[no-untyped-call]

CONTROLLERS: Final = CollectorRegistry()
"""Of `caas.controllers`."""
API: Final = CollectorRegistry()
"""Of `caas.api`."""
DEVICE_PLUGIN: Final = CollectorRegistry()
"""Of `caas.device_plugin`."""

_TABLE: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("metrics.yaml").read_text())
_REGISTRIES = {"controllers": CONTROLLERS, "api": API, "device-plugin": DEVICE_PLUGIN}
for _registry in _REGISTRIES.values():
    ProcessCollector(registry=_registry)


def _metric(kind: type[Metric], name: str) -> Metric:
    (program,) = (program for program, metrics in _TABLE.items() if name in metrics)
    row = dict(_TABLE[program][name])
    more = {"labelnames": row.pop("labels", ()), "registry": _REGISTRIES[program]}
    return kind(f"gpu_clusters_{name}", row.pop("says"), **more, **row)


LEASES: Final = _metric(Gauge, "leases")
LEASE_TRANSITIONS: Final = _metric(Counter, "lease_transitions_total")
LEASE_PHASE_SECONDS: Final = _metric(Histogram, "lease_phase_seconds")
HANDOVER_SECONDS: Final = _metric(Histogram, "handover_seconds")
GRANT_SECONDS: Final = _metric(Histogram, "grant_seconds")
QUARANTINED: Final = _metric(Counter, "quarantined_total")
QUEUE_PODS: Final = _metric(Gauge, "queue_pods")
QUEUE_WAIT_SECONDS: Final = _metric(Gauge, "queue_wait_seconds")
TENANCIES: Final = _metric(Gauge, "tenancies")
TENANCY_READY_SECONDS: Final = _metric(Histogram, "tenancy_ready_seconds")
CAPACITY_PARTITIONS: Final = _metric(Gauge, "capacity_partitions")
BOOT_SECONDS: Final = _metric(Histogram, "boot_seconds")
LATE_STARTS: Final = _metric(Counter, "late_starts_total")
LEADER: Final = _metric(Gauge, "leader")
API_REQUESTS: Final = _metric(Counter, "api_requests_total")
API_REQUEST_SECONDS: Final = _metric(Histogram, "api_request_seconds")
DEVICE_PLUGIN_ALLOCATIONS: Final = _metric(Counter, "device_plugin_allocations_total")
DEVICE_PLUGIN_DEVICES: Final = _metric(Gauge, "device_plugin_devices")


# A series that begins with its first event hides that event from `increase`: these begin at zero.
for _reason in QuarantineReason:
    QUARANTINED.labels(_reason)
for _result in ("granted", "refused", "error"):
    DEVICE_PLUGIN_ALLOCATIONS.labels(_result)


def exposition(registry: CollectorRegistry) -> tuple[bytes, str]:
    """A program's metrics in Prometheus' text form, and the content type to send them with."""
    return generate_latest(registry), CONTENT_TYPE_LATEST
