"""Every metric of the programs in the cluster, in one place; each program exposes a registry of its own.

`docs/observability.md` explains them; the dashboard and the alert rules are tested against this module.
Gauges of the controllers describe what the leading one sees; one that stops leading ends.
"""

from __future__ import annotations

from functools import partial
from typing import Final

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

from gpuclusters.lease.model import Reason

# A creation time per series, for which nothing asks.
disable_created_metrics()  # type: ignore[no-untyped-call]

CONTROLLERS: Final = CollectorRegistry()
"""Of `caas.controllers`."""
API: Final = CollectorRegistry()
"""Of `caas.api`."""
DEVICE_PLUGIN: Final = CollectorRegistry()
"""Of `caas.device_plugin`."""

for _registry in (CONTROLLERS, API, DEVICE_PLUGIN):
    ProcessCollector(registry=_registry)
_counter = partial(Counter, registry=CONTROLLERS)
_gauge = partial(Gauge, registry=CONTROLLERS)
_histogram = partial(Histogram, registry=CONTROLLERS)

# A reset takes a second, clearing 80 GiB some minutes; the deadlines of the phases end below half an hour.
_LEASE_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 180, 300, 600, 900, 1800)
# A VM with one GPU boots in half a minute; one with eight took half an hour before tuning.
_BOOT_SECONDS = (1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900, 1800)
# From a free board at once to a queue of some hours.
_WAIT_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 1800, 3600, 7200, 14400)
_TENANCY_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300)
_REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

LEASES: Final = _gauge(
    "gpu_clusters_leases", "GPUs by phase of their lease and by host.", ("phase", "host")
)
LEASE_TRANSITIONS: Final = _counter(
    "gpu_clusters_lease_transitions_total", "Changes of a lease's phase.", ("from", "to", "host")
)
LEASE_PHASE_SECONDS: Final = _histogram(
    "gpu_clusters_lease_phase_seconds",
    "How long a lease was in a phase that it has now left.",
    ("phase",),
    buckets=_LEASE_SECONDS,
)
HANDOVER_SECONDS: Final = _histogram(
    "gpu_clusters_handover_seconds",
    "From the release of a GPU to its being free again, verified.",
    buckets=_LEASE_SECONDS,
)
GRANT_SECONDS: Final = _histogram(
    "gpu_clusters_grant_seconds",
    "From the request for GPUs to their being leased, time in the queue included.",
    buckets=_WAIT_SECONDS,
)
QUARANTINED: Final = _counter(
    "gpu_clusters_quarantined_total",
    "GPUs that were quarantined, by reason (a word of a fixed set, never a message).",
    ("reason",),
)
QUEUE_PODS: Final = _gauge("gpu_clusters_queue_pods", "Requests that wait for GPUs.", ("tenant",))
QUEUE_WAIT_SECONDS: Final = _gauge(
    "gpu_clusters_queue_wait_seconds",
    "How long the oldest request in the queue has waited; 0 when nothing waits.",
)
TENANCIES: Final = _gauge(
    "gpu_clusters_tenancies",
    "Tenancies by whether all of their isolation is enforced (ready: true, false).",
    ("ready",),
)
TENANCY_READY_SECONDS: Final = _histogram(
    "gpu_clusters_tenancy_ready_seconds",
    "From the creation of a tenancy, or a change of it, to its isolation being enforced.",
    buckets=_TENANCY_SECONDS,
)
CAPACITY_PARTITIONS: Final = _gauge(
    "gpu_clusters_capacity_partitions",
    "Partitions on offer by size and state: free (every GPU is), unschedulable (so, but the node is "
    "cordoned or away), broken (a GPU is quarantined), busy (anything else). A GPU counts in a "
    "partition of each size.",
    ("size", "state"),
)
BOOT_SECONDS: Final = _histogram(
    "gpu_clusters_boot_seconds",
    "From the lease of a container to each step of its start: scheduled (a node has it), sandbox "
    "(its virtual machine runs), started (the container runs).",
    ("phase", "gpus"),
    buckets=_BOOT_SECONDS,
)
LATE_STARTS: Final = _counter(
    "gpu_clusters_late_starts_total",
    "Containers that were ended because they had their GPUs and did not start in time.",
)
LEADER: Final = _gauge(
    "gpu_clusters_leader",
    "1 for the controllers that lead, 0 for those that stand by.",
    ("identity",),
)
API_REQUESTS: Final = Counter(
    "gpu_clusters_api_requests_total",
    "Requests answered by the API; route is the pattern, not the path.",
    ("method", "route", "status"),
    registry=API,
)
API_REQUEST_SECONDS: Final = Histogram(
    "gpu_clusters_api_request_seconds",
    "From the arrival of a request to the start of its answer.",
    ("method", "route"),
    buckets=_REQUEST_SECONDS,
    registry=API,
)
DEVICE_PLUGIN_ALLOCATIONS: Final = Counter(
    "gpu_clusters_device_plugin_allocations_total",
    "Answers to the kubelet's Allocate: granted, refused (not the leased GPUs), error (leases could "
    "not be read or marked).",
    ("result",),
    registry=DEVICE_PLUGIN,
)
DEVICE_PLUGIN_DEVICES: Final = Gauge(
    "gpu_clusters_device_plugin_devices",
    "GPUs announced to the kubelet by health (healthy, unhealthy).",
    ("health",),
    registry=DEVICE_PLUGIN,
)


# A series that begins with its first event hides that event from `increase`: these begin at zero.
for _reason in Reason:
    QUARANTINED.labels(_reason)
for _result in ("granted", "refused", "error"):
    DEVICE_PLUGIN_ALLOCATIONS.labels(_result)


def exposition(registry: CollectorRegistry) -> tuple[bytes, str]:
    """A program's metrics in Prometheus' text form, and the content type to send them with."""
    return generate_latest(registry), CONTENT_TYPE_LATEST
