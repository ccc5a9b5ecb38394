"""Whether a Prometheus really selects a ServiceMonitor or a PrometheusRule, and if not, why.

A ServiceMonitor that nobody selects is the most common reason why GPU metrics are missing: nothing
fails, the alerts are silent, dashboards are empty. The rules are those of the Prometheus operator: a
selector that is absent selects nothing, an empty one everything; an absent namespace selector means the
Prometheus' own namespace only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Labels = Mapping[str, str]
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class What:
    """A kind of object that a Prometheus selects, and the fields of its spec that do."""

    kind: str
    selector: str
    namespaces: str


SERVICE_MONITOR = What(
    "ServiceMonitor", "serviceMonitorSelector", "serviceMonitorNamespaceSelector"
)
PROMETHEUS_RULE = What("PrometheusRule", "ruleSelector", "ruleNamespaceSelector")


def matches(selector: Document | None, labels: Labels) -> bool:
    """Whether a label selector of Kubernetes selects these labels; None selects nothing."""
    return selector is not None and not _mismatches(selector, labels)


def why_not(
    prometheus: Document, what: What, selected: Document, namespaces: Mapping[str, Labels]
) -> Sequence[str]:
    """What keeps a Prometheus from selecting an object; empty if it does.

    Args:
        prometheus: the Prometheus object.
        what: which kind is selected.
        selected: the object.
        namespaces: labels of namespaces by name.
    """
    spec = prometheus.get("spec") or {}
    metadata = selected["metadata"]
    found = []
    selector = spec.get(what.selector)
    if selector is None:
        found.append(f"{what.selector} is not set, which selects no {what.kind}")
    else:
        found += [
            f"{what.selector} wants {reason}"
            for reason in _mismatches(selector, metadata.get("labels") or {})
        ]
    wanted, theirs = spec.get(what.namespaces), str(metadata["namespace"])
    own = str(prometheus["metadata"]["namespace"])
    if wanted is None:
        if theirs != own:
            found.append(f"{what.namespaces} is not set, which selects the namespace {own} only")
    else:
        found += [
            f"{what.namespaces} wants {reason} of the namespace {theirs}"
            for reason in _mismatches(wanted, namespaces.get(theirs, {}))
        ]
    return found


def _mismatches(selector: Document, labels: Labels) -> list[str]:
    found = [
        f"the label {key}={value} (it is {_shown(labels.get(key))})"
        for key, value in (selector.get("matchLabels") or {}).items()
        if labels.get(key) != value
    ]
    for expression in selector.get("matchExpressions") or ():
        key, operator = str(expression["key"]), str(expression["operator"])
        values = [str(value) for value in expression.get("values") or ()]
        if not _holds(operator, labels.get(key), values):
            listed = f" {', '.join(values)}" if values else ""
            found.append(f"the label {key} {operator}{listed} (it is {_shown(labels.get(key))})")
    return found


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
