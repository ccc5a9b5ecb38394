"""Whether what the GPUs report reaches a Prometheus: monitors and rules that are there and selected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuclusters.domain.gpu_alerts import RULES_NAME
from gpuclusters.domain.ports import ClusterObjects, ObjectKind
from gpuclusters.domain.prometheus_selection import (
    PROMETHEUS_RULE,
    SERVICE_MONITOR,
    Labels,
    What,
    why_not,
)
from gpuclusters.domain.proof import Check, Outcome
from gpuclusters.domain.tenancy_objects import NAMESPACE

LEVEL = "metrics"
EXPORTER = "nvidia-dcgm-exporter"
_GROUP = "monitoring.coreos.com"
PROMETHEUS = ObjectKind(_GROUP, "v1", "prometheuses", "Prometheus", namespaced=True)
MONITOR = ObjectKind(_GROUP, "v1", "servicemonitors", "ServiceMonitor", namespaced=True)
RULE = ObjectKind(_GROUP, "v1", "prometheusrules", "PrometheusRule", namespaced=True)

Object = Mapping[str, Any]


def look(cluster: ClusterObjects, *, operator_namespace: str, namespace: str) -> Sequence[Check]:
    """A check for the exporter's monitor, for every other of the operator, and for our rules.

    Args:
        cluster: to be asked.
        operator_namespace: of the GPU operator.
        namespace: of Prometheus and of our rules.
    """
    spaces = {
        str(one["metadata"]["name"]): one["metadata"].get("labels") or {}
        for one in cluster.list(NAMESPACE)
    }
    watchers = cluster.list(PROMETHEUS, namespace)
    monitors = {str(m["metadata"]["name"]): m for m in cluster.list(MONITOR, operator_namespace)}
    rules = {str(r["metadata"]["name"]): r for r in cluster.list(RULE, namespace)}
    found = [
        _selected(watchers, SERVICE_MONITOR, monitors[name], spaces) for name in sorted(monitors)
    ]
    if EXPORTER not in monitors:
        found.append(_absent(f"ServiceMonitor {operator_namespace}/{EXPORTER}", _NO_MONITOR))
    if RULES_NAME in rules:
        found.append(_selected(watchers, PROMETHEUS_RULE, rules[RULES_NAME], spaces))
    else:
        found.append(_absent(f"PrometheusRule {namespace}/{RULES_NAME}", "run `up` again"))
    return found


_NO_MONITOR = (
    "set the operator's value dcgmExporter.serviceMonitor.enabled: true; the operator leaves it out while "
    "the kinds of the Prometheus operator are missing, so restart it if they came later"
)


def _selected(
    watchers: Sequence[Object], what: What, body: Object, spaces: Mapping[str, Labels]
) -> Check:
    name = f"{what.kind} {body['metadata']['namespace']}/{body['metadata']['name']}"
    reasons = list(_reasons(watchers, what, body, spaces))
    if any(not reason for _, reason in reasons):
        chosen = ", ".join(watcher for watcher, reason in reasons if not reason)
        return Check(LEVEL, name, "is selected", Outcome.PASSED, f"by {chosen}")
    said = "; ".join(f"{watcher}: {reason}" for watcher, reason in reasons)
    return Check(LEVEL, name, "is selected", Outcome.FAILED, said or "there is no Prometheus")


def _reasons(
    watchers: Sequence[Object], what: What, body: Object, spaces: Mapping[str, Labels]
) -> Iterator[tuple[str, str]]:
    for watcher in watchers:
        metadata = watcher["metadata"]
        name = f"Prometheus {metadata['namespace']}/{metadata['name']}"
        yield name, "; ".join(why_not(watcher, what, body, spaces))


def _absent(name: str, remedy: str) -> Check:
    return Check(LEVEL, name, "is selected", Outcome.FAILED, f"it is not there; {remedy}")
