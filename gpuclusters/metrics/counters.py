"""What dcgm-exporter is told to export (`data/gpu_counters.yaml`).

The rendered list is the key `dcgm-metrics.csv` of the ConfigMap that the GPU operator's value
`dcgmExporter.config.name` names; the exporter reads it when it starts, so the ConfigMap is to be named after
its content.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache

from gpuclusters.compat.dated_table import Row, Table, document

FILE = "dcgm-metrics.csv"
"""Key of the ConfigMap that the exporter reads."""
RENAMED = (4, 9)
"""The exporter that calls 23 fields otherwise, counts 11 in other units and renames the driver's label. No
operator of the table brings it; alerts and dashboards have to follow before one does."""

ALWAYS = frozenset(
    {"gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_ID", "GPU_I_PROFILE"}
)
"""Labels of every series; the last two of MIG instances only. `Hostname` is left out on purpose:
releases after 4.8.2 call it `hostname`."""
WORKLOAD = frozenset({"exported_namespace", "exported_pod", "exported_container"})
"""Which pod uses the GPU, as Prometheus renames it when the ServiceMonitor does not honor labels."""
TARGET = frozenset(
    {"node", "instance", "job", "namespace", "pod", "service", "endpoint", "container"}
)
"""What Prometheus puts on every series of a ServiceMonitor; `node` by the relabeling that we set."""


class Kind(StrEnum):
    """Type of a metric, as the exporter's file spells it."""

    GAUGE = "gauge"
    COUNTER = "counter"
    LABEL = "label"
    """No series of its own: a label on all others."""


class Counter(Row):
    """One line of the file."""

    kind: Kind
    help: str
    labels: frozenset[str] = frozenset()
    """Labels that only this one has."""


Counters = Mapping[str, Counter]
"""By field of DCGM."""


class _Counters(Table):
    default: Counters
    extra: Counters


@cache
def table() -> _Counters:
    """The exporter's own list, and what is added to it."""
    return _Counters.model_validate(document("gpu_counters"))


def csv() -> str:
    """The file as the exporter reads it: field, type, help; no comma in the help."""
    counters = {**table().default, **table().extra}
    lines = [f"{name}, {one.kind}, {one.help.replace(',', ';')}" for name, one in counters.items()]
    return "\n".join(["# field, Prometheus type, help", *lines, ""])


def exported(counters: Counters | None = None) -> Mapping[str, frozenset[str]]:
    """Labels by the name of each series that a scrape of the exporter gives; None: of the whole list."""
    kept = {**table().default, **table().extra} if counters is None else counters
    static = {name for name, one in kept.items() if one.kind is Kind.LABEL}
    common = ALWAYS | WORKLOAD | TARGET | static
    return {name: common | one.labels for name, one in kept.items() if name not in static}
