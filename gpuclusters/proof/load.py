"""Judges the load that the metrics must show, and the burn-in."""

from __future__ import annotations

import re
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
from gpuclusters.proof.checks import Check, Level, Outcome
from gpuclusters.tenancy.objects import NAMESPACE

_VERDICT = re.compile(r"^\s*GPU (\d+): (OK|FAULTY)\b", re.MULTILINE)
_SEEN = "is seen under load by Prometheus"


def tensor_query(window_seconds: int) -> str:
    """How active each GPU's tensor pipe was at most, by the pod that exported or used it.

    A node cannot be asked for: which label names it differs between releases of the exporter.
    """
    metric = f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE[{window_seconds}s]"
    return f"max by (pod, exported_pod, gpu, UUID) (max_over_time({metric}))"


def active(answer: Mapping[str, Any], node_of: Mapping[str, str]) -> Mapping[str, dict[str, float]]:
    """Activity by node and GPU, from an answer of Prometheus' query API.

    Args:
        answer: the whole answer.
        node_of: node by name of pod, of the exporter's pods and of the proof's.
    """
    found: dict[str, dict[str, float]] = {}
    for series in (answer.get("data") or {}).get("result") or ():
        labels, (_, value) = series["metric"], series["value"]
        node = node_of.get(labels.get("pod", "")) or node_of.get(labels.get("exported_pod", ""))
        if node is not None:
            gpu = str(labels.get("UUID") or labels.get("gpu"))
            known = found.setdefault(node, {})
            known[gpu] = max(known.get(gpu, 0.0), float(value))
    return found


def judge_load(
    node: str, gpus: int, seen: Mapping[str, float], least_percent: int
) -> Sequence[Check]:
    """One check: all GPUs of the node were busy enough, as Prometheus saw it."""
    low = {gpu: share for gpu, share in seen.items() if share * 100 < least_percent}
    if not seen:
        outcome, said = Outcome.FAILED, "Prometheus has no DCGM_FI_PROF_PIPE_TENSOR_ACTIVE of it"
    elif len(seen) < gpus:
        outcome, said = Outcome.FAILED, f"Prometheus knows {len(seen)} of its {gpus} GPUs"
    elif low:
        listed = ", ".join(f"{gpu} {share:.0%}" for gpu, share in sorted(low.items()))
        outcome, said = Outcome.FAILED, f"below {least_percent} % of the time: {listed}"
    else:
        outcome, said = Outcome.PASSED, f"{len(seen)} GPUs, the least {min(seen.values()):.0%}"
    figures = {"least_tensor_active": min(seen.values())} if seen else {}
    return [Check(Level.L2, node, _SEEN, outcome, said, figures)]


def judge_burn(node: str, gpus: int, log: str, *, exit_code: int) -> Sequence[Check]:
    """A check for each GPU that gpu-burn tells of, by its last word."""
    verdicts = dict(_VERDICT.findall(log))
    checks = [
        Check(
            Level.L3,
            f"{node} GPU {gpu}",
            "stands a burn-in",
            Outcome.PASSED if verdict == "OK" else Outcome.FAILED,
            verdict,
        )
        for gpu, verdict in verdicts.items()
    ]
    if len(verdicts) != gpus or exit_code:
        said = f"it tells of {len(verdicts)} of {gpus} GPUs, exit code {exit_code}"
        checks.append(Check(Level.L3, node, "stands a burn-in", Outcome.FAILED, said))
    return checks


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
