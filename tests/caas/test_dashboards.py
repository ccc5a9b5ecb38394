"""The dashboard and the alert rules ask for what our programs export, and nothing else."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from caas import metrics
from gpuclusters.lease.model import Phase
from tests.fixtures import grafana
from tests.fixtures.grafana import DASHBOARDS as FOLDER
from tests.fixtures.promql import parse

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted(FOLDER.glob("caas*.json"))
RULES = FOLDER / "alerts.yaml"

TARGET_LABELS = frozenset({"instance", "job", "namespace", "pod"})
"""Which Prometheus itself puts on every series."""
SERIES = {"gauge": ("",), "counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
"""Which series a metric of a type has."""
VALUES = {
    "phase": {*Phase, "scheduled", "sandbox", "started"},
    "state": {"free", "busy", "broken"},
    "ready": {"true", "false"},
    "health": {"healthy", "unhealthy"},
    "result": {"granted", "refused", "error"},
    "size": {"1", "2", "4", "8"},
}


def exported() -> dict[str, frozenset[str]]:
    """Labels by the name of each series that our programs export."""
    found: dict[str, frozenset[str]] = {}
    registries: list[CollectorRegistry] = [metrics.CONTROLLERS, metrics.API, metrics.DEVICE_PLUGIN]
    collectors = {c for registry in registries for c in registry._names_to_collectors.values()}
    for collector in collectors:
        labels = frozenset(getattr(collector, "_labelnames", ()))
        for metric in collector.collect():
            for suffix in SERIES.get(metric.type, ()):
                extra = {"le"} if suffix == "_bucket" else set()
                found[metric.name + suffix] = labels | extra
    return found


def faults(expression: str) -> list[str]:
    """What an expression asks for and nobody exports."""
    series = {name: labels | TARGET_LABELS for name, labels in exported().items()}
    problems = grafana.unknown(expression, series)
    for _, matchers in parse(expression).selectors:
        for label in matchers.keys() & VALUES.keys():
            words = [] if "$" in matchers[label] else matchers[label].split("|")
            strange = [word for word in words if word not in VALUES[label]]
            problems += [f"{label} is never {word!r}" for word in strange]
    return problems


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(RULES.read_text())
    return [rule for group in document["spec"]["groups"] for rule in group["rules"]]


EXPRESSIONS = {
    **{name: query for path in DASHBOARDS for name, query in grafana.expressions(path)},
    **{rule["alert"]: rule["expr"] for rule in rules()},
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_each_query_names_only_metrics_and_labels_that_are_exported(name: str) -> None:
    assert faults(EXPRESSIONS[name]) == []


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("sum(gpu_clusters_lease)", "no metric gpu_clusters_lease"),
        ("rate(gpu_clusters_handover_seconds[5m])", "no metric gpu_clusters_handover_seconds"),
        ('gpu_clusters_leases{tenant="a"}', "gpu_clusters_leases has no label tenant"),
        ('gpu_clusters_leases{phase="free"}', "phase is never 'free'"),
        ('gpu_clusters_leases{phase=~"Free|Lost"}', "phase is never 'Lost'"),
        ("sum(gpu_clusters_leases) by (gpu)", "nothing in gpu_clusters_leases has a label gpu"),
        ('gpu_clusters_handover_seconds_sum{le="1"}', "seconds_sum has no label le"),
    ],
)
def test_a_query_that_asks_for_something_else_is_found(expression: str, problem: str) -> None:
    (found,) = faults(expression)
    assert problem in found


def test_what_is_no_query_is_found() -> None:
    with pytest.raises(ValueError, match="expected type matrix"):
        faults("rate(gpu_clusters_quarantined_total)")


def test_a_dashboard_is_what_grafana_imports_and_shows() -> None:
    (path,) = DASHBOARDS
    assert len(EXPRESSIONS) > 30
    grafana.assert_importable(path)
    grafana.assert_fits_the_grid(path)
    grafana.assert_knows_its_sources(path)


def test_rules_are_a_prometheus_rule_with_complete_alerts() -> None:
    document = yaml.safe_load(RULES.read_text())
    assert document["apiVersion"] == "monitoring.coreos.com/v1"
    assert document["kind"] == "PrometheusRule"
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    for rule in rules():
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"GpuClusters[A-Za-z]+", rule["alert"])
        assert re.fullmatch(r"\d+[smh]", rule["for"])
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "description"}
        comparisons = re.search(r"[<>]", rule["expr"])
        assert comparisons, f"{rule['alert']} would always fire"


def test_alert_texts_use_labels_that_their_expression_keeps() -> None:
    for rule in rules():
        kept = {label for label, _ in parse(rule["expr"]).grouped}
        for text in rule["annotations"].values():
            assert set(re.findall(r"\$labels\.(\w+)", text)) <= kept, rule["alert"]


def test_each_alert_has_its_section_in_the_runbook() -> None:
    page = (ROOT / "docs" / "observability.md").read_text()
    headings = set(re.findall(r"^### (GpuClusters\w+)$", page, re.MULTILINE))
    assert headings == {rule["alert"] for rule in rules()}
