"""Alert rules of an rke2 cluster's GPUs, and which XIDs wake somebody up.

The driver reports what went wrong on a GPU as an XID. What NVIDIA's catalogue calls for at once decides
(`data/xids.yaml`): a code pages if the GPU or the machine has to be reset, and nobody hears of one that calls
for nothing or for another start of the application. Everything else is worth a look in working hours.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import TypeAdapter

from gpuclusters.compat.dated_table import Row, Table

EXPECTED = "gpu_clusters:node_gpus_expected"
"""Recorded by us: how many of a resource a node must offer."""
PREFIX = "Rke2Gpu"
RULES_NAME = "gpu-clusters-gpus"
_FILE = Path(__file__).with_name("alerts.yaml")


class Alert(Row):
    name: str
    """Without `PREFIX`."""
    expr: str
    wait: str
    """How long it must hold, as Prometheus writes durations."""
    severity: Literal["critical", "warning", "info"]
    summary: str
    description: str
    runbook: str
    """What to do, in a sentence or two."""

    def rule(self) -> dict[str, Any]:
        return {
            "alert": PREFIX + self.name,
            "expr": self.expr,
            "for": self.wait,
            "labels": {"severity": self.severity},
            "annotations": self.model_dump(include={"summary", "description", "runbook"}),
        }


@cache
def alerts() -> Mapping[str, tuple[Alert, ...]]:
    words = {
        "GPU_OF_NODE": "GPU {{ $labels.gpu }} of {{ $labels.node }}",
        "EXPECTED": EXPECTED,
        "PAGE": pattern(Urgency.PAGE),
        "IGNORE": pattern(Urgency.IGNORE),
    }
    text = _FILE.read_text(encoding="utf-8").partition("\n\n")[2]
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return TypeAdapter(dict[str, tuple[Alert, ...]]).validate_python(yaml.safe_load(text))


def groups(expected: Mapping[str, Mapping[str, int]]) -> Sequence[dict[str, Any]]:
    """All rule groups: what is expected, then the alerts."""
    records = [
        {
            "record": EXPECTED,
            "expr": f"vector({count})",
            "labels": {"node": node, "resource": _series(resource)},
        }
        for node, resources in sorted(expected.items())
        for resource, count in sorted(resources.items())
    ]
    found = [{"name": f"{RULES_NAME}.expected", "rules": records}] if records else []
    return found + [
        {"name": f"{RULES_NAME}.{name}", "rules": [alert.rule() for alert in group]}
        for name, group in alerts().items()
    ]


def _series(resource: str) -> str:
    """As kube-state-metrics labels it: `nvidia.com/mig-1g.10gb` is `nvidia_com_mig_1g_10gb`."""
    return "".join(letter if letter.isalnum() else "_" for letter in resource)


class Urgency(StrEnum):
    PAGE = "page"
    LOOK = "look"
    IGNORE = "ignore"


class Xid(Row):
    nvidia: str
    """The immediate action of NVIDIA's catalogue."""
    meaning: str
    do: str
    leads_to: Urgency | None = None
    """Where this program differs from what NVIDIA's action leads to."""


class _Xids(Table):
    leads_to: Mapping[Urgency, tuple[str, ...]]
    xids: Mapping[int, Xid]


@cache
def xids() -> Mapping[int, tuple[Urgency, Xid]]:
    """Every code that is listed, with what it leads to."""
    table = _Xids.packaged("xids")
    of = {action: urgency for urgency, actions in table.leads_to.items() for action in actions}
    return {number: (xid.leads_to or of[xid.nvidia], xid) for number, xid in table.xids.items()}


def pattern(urgency: Urgency) -> str:
    """These codes as a regular expression of PromQL."""
    return "|".join(str(number) for number, (leads_to, _) in xids().items() if leads_to is urgency)
