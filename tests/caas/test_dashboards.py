"""The dashboard and the alert rules ask for what our programs export, and nothing else."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from caas import metrics
from gpuclusters.domain.lease_resource import Phase
from tests.caas.promql import PromqlError, parse

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "dashboards").glob("*.json"))
RULES = ROOT / "dashboards" / "alerts.yaml"

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
    series = exported()
    asked = parse(expression)
    problems = [f"no metric {name}" for name in asked.metrics if name not in series]
    if problems:
        return problems
    for selector in asked.selectors:
        for label, sign, value in selector.matchers:
            if label not in series[selector.metric] | TARGET_LABELS:
                problems.append(f"{selector.metric} has no label {label}")
            known = VALUES.get(label)
            if known and sign in {"=", "!="} and value not in known:
                problems.append(f"{label} is never {value!r}")
            if known and sign in {"=~", "!~"} and "$" not in value:
                matching = {word for word in value.split("|") if word not in known}
                problems += [f"{label} is never {word!r}" for word in sorted(matching)]
    for label, names in asked.grouped:
        if not any(label in series[name] | TARGET_LABELS for name in names):
            problems.append(f"nothing in {', '.join(names)} has a label {label}")
    return problems


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", ())


def dashboard_expressions() -> Iterator[tuple[str, str]]:
    for path in DASHBOARDS:
        for panel in panels(json.loads(path.read_text())):
            for target in panel.get("targets", ()):
                yield f"{path.name}: {panel['title']} {target['refId']}", target["expr"]


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load(RULES.read_text())
    return [rule for group in document["spec"]["groups"] for rule in group["rules"]]


EXPRESSIONS = dict(dashboard_expressions()) | {rule["alert"]: rule["expr"] for rule in rules()}


def test_there_are_expressions_to_check() -> None:
    assert len(DASHBOARDS) == 1
    assert len(EXPRESSIONS) > 30


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
        (
            "sum by (tenant) (gpu_clusters_leases)",
            "nothing in gpu_clusters_leases has a label tenant",
        ),
        ("sum(gpu_clusters_leases) by (gpu)", "nothing in gpu_clusters_leases has a label gpu"),
        (
            "gpu_clusters_leases and on (tenant) gpu_clusters_leader",
            "nothing in gpu_clusters_leases, gpu_clusters_leader has a label tenant",
        ),
        ("gpu_clusters_handover_seconds_sum{le='1'}", None),
        ('gpu_clusters_handover_seconds_sum{le="1"}', "seconds_sum has no label le"),
    ],
)
def test_a_query_that_asks_for_something_else_is_found(
    expression: str, problem: str | None
) -> None:
    if problem is None:
        with pytest.raises(PromqlError):
            faults(expression)
        return
    (found,) = faults(expression)
    assert problem in found


@pytest.mark.parametrize(
    "expression",
    [
        "sum(gpu_clusters_leases",
        "sum(gpu_clusters_leases))",
        "rate(gpu_clusters_leases)",
        "summe(gpu_clusters_leases)",
        "gpu_clusters_leases{phase}",
        "gpu_clusters_leases[5 minutes]",
        "gpu_clusters_leases >",
        "",
    ],
)
def test_what_is_not_promql_is_refused(expression: str) -> None:
    with pytest.raises(PromqlError):
        parse(expression)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_a_dashboard_is_what_grafana_imports(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    assert {"uid", "title", "tags", "schemaVersion", "time", "templating", "panels"} <= set(
        dashboard
    )
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", dashboard["uid"])
    assert dashboard["schemaVersion"] >= 36
    every = list(panels(dashboard))
    ids = [panel["id"] for panel in every]
    assert len(ids) == len(set(ids))
    for panel in every:
        assert panel["type"] in {"row", "timeseries", "stat", "bargauge"}
        assert panel["title"]
        if panel["type"] != "row":
            assert {"datasource", "fieldConfig", "options", "targets", "gridPos"} <= set(panel)
            references = [target["refId"] for target in panel["targets"]]
            assert len(references) == len(set(references)) > 0


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_panels_do_not_overlap_and_fit_the_grid(path: Path) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(path.read_text())["panels"]:
        grid = panel["gridPos"]
        assert 0 <= grid["x"] < grid["x"] + grid["w"] <= 24
        columns = range(grid["x"], grid["x"] + grid["w"])
        for cell in itertools.product(columns, range(grid["y"], grid["y"] + grid["h"])):
            assert taken.setdefault(cell, panel["title"]) == panel["title"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_every_data_source_is_the_variable_and_every_variable_exists(path: Path) -> None:
    text = path.read_text()
    dashboard = json.loads(text)
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval"}
    assert used <= variables

    def sources(value: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            if "datasource" in value:
                yield value["datasource"]
            for inner in value.values():
                yield from sources(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from sources(inner)

    for source in sources(dashboard):
        assert source == {"type": "prometheus", "uid": "${datasource}"}


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
