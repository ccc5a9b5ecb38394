"""What dcgm-exporter is told to export (`data/gpu_counters.yaml`).

The rendered list is the key `dcgm-metrics.csv` of the ConfigMap that the GPU operator's value
`dcgmExporter.config.name` names; the exporter reads it when it starts, so the ConfigMap is to be named after
its content.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache, partial

from gpuclusters.compat.dated_table import Row, Table

FILE = "dcgm-metrics.csv"


class Kind(StrEnum):
    """Type of a metric, as the exporter's file spells it."""

    GAUGE = "gauge"
    COUNTER = "counter"
    LABEL = "label"
    """No series of its own: a label on all others."""


class Counter(Row):
    kind: Kind
    help: str
    labels: frozenset[str] = frozenset()
    """Labels that only this one has."""


Counters = Mapping[str, Counter]


class _Counters(Table):
    default: Counters
    extra: Counters


table = cache(partial(_Counters.packaged, "gpu_counters"))
"""The exporter's own list, and what is added to it."""


def csv() -> str:
    """The file as the exporter reads it: field, type, help; no comma in the help."""
    counters = {**table().default, **table().extra}
    lines = [f"{name}, {one.kind}, {one.help.replace(',', ';')}" for name, one in counters.items()]
    return "\n".join(["# field, Prometheus type, help", *lines, ""])
