"""Whether a Prometheus really selects a ServiceMonitor or a PrometheusRule, and if not, why.

A ServiceMonitor that nobody selects is the most common reason why GPU metrics are missing: nothing
fails, the alerts are silent, dashboards are empty. The rules are those of the Prometheus operator: a
selector that is absent selects nothing, an empty one everything; an absent namespace selector means the
Prometheus' own namespace only.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuclusters.core.ports import ClusterObjects, ObjectKind
from gpuclusters.metrics.alerts import RULES_NAME
from gpuclusters.proof.checks import Check, Outcome
from gpuclusters.tenancy.objects import NAMESPACE

LEVEL = "metrics"
EXPORTER = "nvidia-dcgm-exporter"
_GROUP = "monitoring.coreos.com"
PROMETHEUS = ObjectKind(_GROUP, "v1", "prometheuses", "Prometheus", namespaced=True)
SERVICE_MONITOR = ObjectKind(_GROUP, "v1", "servicemonitors", "ServiceMonitor", namespaced=True)
PROMETHEUS_RULE = ObjectKind(_GROUP, "v1", "prometheusrules", "PrometheusRule", namespaced=True)
_SELECTORS = {
    SERVICE_MONITOR: ("serviceMonitorSelector", "serviceMonitorNamespaceSelector"),
    PROMETHEUS_RULE: ("ruleSelector", "ruleNamespaceSelector"),
}
"""Fields of a Prometheus' spec that select a kind, by labels and by those of its namespace."""
_NO_MONITOR = (
    "set the operator's value dcgmExporter.serviceMonitor.enabled: true; the operator leaves it out while "
    "the kinds of the Prometheus operator are missing, so restart it if they came later"
)

Labels = Mapping[str, str]
Object = Mapping[str, Any]


def look(cluster: ClusterObjects, *, operator_namespace: str, namespace: str) -> Sequence[Check]:
    """A check for the exporter's monitor, for every other of the operator, and for our rules."""
    spaces = {
        str(one["metadata"]["name"]): one["metadata"].get("labels") or {}
        for one in cluster.list(NAMESPACE)
    }
    watchers = cluster.list(PROMETHEUS, namespace)
    wanted = (
        (SERVICE_MONITOR, operator_namespace, EXPORTER, _NO_MONITOR),
        (PROMETHEUS_RULE, namespace, RULES_NAME, "run `up` again"),
    )
    found = []
    for kind, space, name, remedy in wanted:
        there = {str(m["metadata"]["name"]): m for m in cluster.list(kind, space)}
        names = sorted(there) if kind is SERVICE_MONITOR else [n for n in there if n == name]
        found += [_selected(watchers, kind, there[one], spaces) for one in names]
        if name not in there:
            subject, said = f"{kind.kind} {space}/{name}", f"it is not there; {remedy}"
            found.append(Check(LEVEL, subject, "is selected", Outcome.FAILED, said))
    return found


def _selected(
    watchers: Sequence[Object], kind: ObjectKind, body: Object, spaces: Mapping[str, Labels]
) -> Check:
    name = f"{kind.kind} {body['metadata']['namespace']}/{body['metadata']['name']}"
    reasons = {
        "Prometheus {namespace}/{name}".format(**watcher["metadata"]): "; ".join(
            why_not(watcher, kind, body, spaces)
        )
        for watcher in watchers
    }
    if chosen := [watcher for watcher, reason in reasons.items() if not reason]:
        said = f"by {', '.join(chosen)}"
        return Check(LEVEL, name, "is selected", Outcome.PASSED, said)
    said = "; ".join(f"{watcher}: {reason}" for watcher, reason in reasons.items())
    return Check(LEVEL, name, "is selected", Outcome.FAILED, said or "there is no Prometheus")


def why_not(
    prometheus: Object, kind: ObjectKind, selected: Object, namespaces: Mapping[str, Labels]
) -> Sequence[str]:
    """What keeps a Prometheus from selecting an object; empty if it does."""
    spec, metadata = prometheus.get("spec") or {}, selected["metadata"]
    by_labels, by_namespace = _SELECTORS[kind]
    found = []
    if (selector := spec.get(by_labels)) is None:
        found.append(f"{by_labels} is not set, which selects no {kind.kind}")
    else:
        labels = metadata.get("labels") or {}
        found += [f"{by_labels} wants {reason}" for reason in _mismatches(selector, labels)]
    own, theirs = str(prometheus["metadata"]["namespace"]), str(metadata["namespace"])
    if (selector := spec.get(by_namespace)) is not None:
        reasons = _mismatches(selector, namespaces.get(theirs, {}))
        found += [f"{by_namespace} wants {reason} of the namespace {theirs}" for reason in reasons]
    elif theirs != own:
        found.append(f"{by_namespace} is not set, which selects the namespace {own} only")
    return found


def _mismatches(selector: Object, labels: Labels) -> Iterator[str]:
    """What of a label selector of Kubernetes these labels do not match."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            yield f"the label {key}={value} (it is {_shown(labels.get(key))})"
    for expression in selector.get("matchExpressions") or ():
        key, operator = str(expression["key"]), str(expression["operator"])
        values = [str(value) for value in expression.get("values") or ()]
        if not _holds(operator, labels.get(key), values):
            listed = f" {', '.join(values)}" if values else ""
            yield f"the label {key} {operator}{listed} (it is {_shown(labels.get(key))})"


def _holds(operator: str, value: str | None, values: Sequence[str]) -> bool:
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    raise ValueError(f"{operator!r} is no operator of a label selector")


def _shown(value: str | None) -> str:
    return "not there" if value is None else repr(value)
