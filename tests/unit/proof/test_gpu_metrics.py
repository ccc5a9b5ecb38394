"""Rules and dashboards of an rke2 cluster ask for what is exported, and a Prometheus sees it."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuclusters.compat import rke2_matrix
from gpuclusters.metrics import alerts, counters, monitoring_stack
from gpuclusters.metrics.alerts import Urgency
from gpuclusters.metrics.monitoring_stack import Monitoring
from gpuclusters.metrics.selection import (
    PROMETHEUS,
    PROMETHEUS_RULE,
    SERVICE_MONITOR,
    look,
    why_not,
)
from gpuclusters.tenancy.objects import NAMESPACE
from tests.fixtures import grafana
from tests.fixtures.promql import parse
from tests.fixtures.tables import beside

PAGE = Path(__file__).parents[3] / "docs" / "rke2-metrics.md"
FILES = sorted(grafana.DASHBOARDS.glob("rke2-*.json"))
EXPORTED = beside(__file__, "exported.yaml")
# The exporter from here on calls 23 fields otherwise, counts 11 in other units and renames the driver's
# label. No operator of the table brings it; alerts and dashboards have to follow before one does.
RENAMED = (4, 9)
COMMON = frozenset(EXPORTED["scraped"] + EXPORTED["of-the-exporter"])


def exported(*lists: counters.Counters) -> dict[str, frozenset[str]]:
    """Labels by the name of each series that a scrape of the exporter gives."""
    kept = {name: one for counters_ in lists for name, one in counters_.items()}
    static = {name for name, one in kept.items() if one.kind is counters.Kind.LABEL}
    return {name: COMMON | static | one.labels for name, one in kept.items() if name not in static}


ALERTS = {alert.name: alert for group in alerts.alerts().values() for alert in group}
SERIES = {
    **exported(counters.table().default, counters.table().extra),
    **{f"gpu_operator_{name}": set(EXPORTED["scraped"]) for name in EXPORTED["of-the-operator"]},
    **{name: set(labels) for name, labels in EXPORTED["kube-state-metrics"].items()},
    alerts.EXPECTED: frozenset({"node", "resource"}),
}
EXPRESSIONS = {name: alert.expr for name, alert in ALERTS.items()} | {
    name: expr for path in FILES for name, expr in grafana.expressions(path)
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_each_query_names_only_what_is_exported(name: str) -> None:
    assert grafana.unknown(EXPRESSIONS[name], SERIES) == []
    assert not re.search("hostname", EXPRESSIONS[name], re.IGNORECASE)


def test_without_our_list_of_counters_queries_would_find_nothing() -> None:
    default = exported(counters.table().default)
    blind = {
        name
        for name, alert in ALERTS.items()
        if any(
            metric.startswith("DCGM") and metric not in default
            for metric in parse(alert.expr).metrics
        )
    }
    assert {"XidCritical", "EccDoubleBit", "ThermalThrottle"} <= blind


def test_every_counter_that_we_add_is_asked_for() -> None:
    asked = {metric for expr in EXPRESSIONS.values() for metric in parse(expr).metrics}
    unused = set(counters.table().extra) - asked
    # Kept for a look by hand: what Volta has instead of remapped rows, and errors of a GPU's life.
    assert unused == {"DCGM_FI_DEV_RETIRED_DBE", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"}


def test_the_list_of_counters_is_what_the_exporter_reads() -> None:
    lines = [line for line in counters.csv().splitlines() if not line.startswith("#")]
    rows = [[part.strip() for part in line.split(",")] for line in lines]
    assert all(len(row) == 3 for row in rows)
    assert all(row[0].startswith(("DCGM_FI_", "DCGM_EXP_")) for row in rows)
    assert {row[1] for row in rows} == {"gauge", "counter", "label"}
    assert len({row[0] for row in rows}) == len(rows)


@pytest.mark.parametrize("alert", ALERTS.values(), ids=lambda alert: alert.name)
def test_an_alert_is_complete_and_its_texts_use_labels_that_it_keeps(
    alert: alerts.Alert,
) -> None:
    document = alert.rule()
    assert re.fullmatch(r"Rke2Gpu[A-Za-z]+", document["alert"])
    assert re.fullmatch(r"\d+[smh]", document["for"])
    assert set(document["annotations"]) == {"summary", "description", "runbook"}
    assert all(document["annotations"].values())
    assert re.search(r"[<>]| unless ", alert.expr), "it would always fire"
    kept = {label for label, _ in parse(alert.expr).grouped}
    for text in document["annotations"].values():
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= kept
    if alert.wait == "0s":
        # Errors are counted within the exporter's window of minutes: waiting could miss them.
        assert alert in alerts.alerts()["errors"]


def test_what_each_node_must_offer_is_recorded_beside_the_alerts() -> None:
    groups = alerts.groups({"n1": {"nvidia.com/mig-1g.10gb": 7}, "n0": {"nvidia.com/gpu": 8}})
    rules = [(one["record"], one["expr"], *one["labels"].values()) for one in groups[0]["rules"]]
    assert rules == [
        ("gpu_clusters:node_gpus_expected", "vector(8)", "n0", "nvidia_com_gpu"),
        ("gpu_clusters:node_gpus_expected", "vector(7)", "n1", "nvidia_com_mig_1g_10gb"),
    ]
    assert [*groups[0]["rules"][0]["labels"]] == ["node", "resource"]
    assert sum(len(group["rules"]) for group in groups[1:]) == len(ALERTS)
    assert len(alerts.groups({})) == len(groups) - 1


def test_codes_of_applications_page_nobody() -> None:
    paging = ALERTS["XidCritical"].expr
    found = re.search(r'xid=~"([\d|]+)"', paging)
    assert found
    pages = {int(number) for number in found[1].split("|")}
    assert pages == set(EXPORTED["xids"]["pages"])
    quiet = {n for n, (leads_to, _) in alerts.xids().items() if leads_to is Urgency.IGNORE}
    assert set(EXPORTED["xids"]["quiet"]) <= quiet
    assert not quiet & pages
    looks = {n for n, (leads_to, _) in alerts.xids().items() if leads_to is Urgency.LOOK}
    assert set(EXPORTED["xids"]["looks"]) <= looks


def test_the_names_of_counters_are_those_of_every_operators_exporter() -> None:
    # dcgm-exporter 4.9.0, release notes: 23 fields have other names, 11 other units.
    for version, one in rke2_matrix.operators().releases.items():
        # 4.6.0-4.8.3-distroless: DCGM, exporter
        tag = one.images["dcgmExporter"].rpartition(":")[2]
        exporter = tuple(int(part) for part in tag.split("-")[1].split("."))
        assert exporter < RENAMED, (version, tag)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_dashboard_can_be_imported_and_knows_no_address(path: Path) -> None:
    grafana.assert_importable(path)
    grafana.assert_fits_the_grid(path)
    grafana.assert_knows_its_sources(path)
    # A ConfigMap takes a mebibyte, and the annotation of a client-side apply a quarter of that.
    assert len(json.dumps(json.loads(path.read_text()))) < 200_000


def test_there_are_dashboards_and_their_queries_are_read() -> None:
    assert [path.name for path in FILES] == ["rke2-fleet.json", "rke2-health.json"]
    assert len(EXPRESSIONS) > 50
    with pytest.raises(ValueError, match="unclosed"):
        grafana.unknown("sum(DCGM_FI_DEV_GPU_TEMP", SERIES)
    assert grafana.unknown('DCGM_FI_DEV_GPU_TEMP{Hostname="a"}', SERIES) == [
        "DCGM_FI_DEV_GPU_TEMP has no label Hostname"
    ]
    assert grafana.unknown("DCGM_FI_DEV_ENC_UTIL", SERIES) == ["no metric DCGM_FI_DEV_ENC_UTIL"]


def test_each_alert_has_its_place_in_the_page() -> None:
    page = PAGE.read_text()
    assert set(re.findall(r"^### (Rke2Gpu\w+)$", page, re.MULTILINE)) == {
        alerts.PREFIX + name for name in ALERTS
    }


NAMESPACES = {"monitoring": {"team": "infra"}, "gpu-operator": {"team": "gpu"}}
SELECTIONS = beside(__file__, "selection.yaml")


def prometheus(name: str = "kps", **spec: Any) -> dict[str, Any]:
    selectors = ("serviceMonitor", "serviceMonitorNamespace", "rule", "ruleNamespace")
    everything = {f"{name}Selector": {} for name in selectors}
    return {"metadata": {"name": name, "namespace": "monitoring"}, "spec": everything | spec}


def monitor(**labels: str) -> dict[str, Any]:
    metadata = {"name": "nvidia-dcgm-exporter", "namespace": "gpu-operator", "labels": labels}
    return {"metadata": metadata}


@pytest.mark.parametrize("case", SELECTIONS)
def test_a_prometheus_selects_a_monitor_or_it_is_said_why_not(case: dict[str, Any]) -> None:
    asks, has = prometheus(**case.get("spec", {})), monitor(**case.get("labels", {}))
    assert why_not(asks, SERVICE_MONITOR, has, NAMESPACES) == case["why-not"]


def test_rules_are_selected_by_fields_of_their_own_and_by_operators_that_kubernetes_has() -> None:
    deaf = prometheus(ruleSelector={"matchLabels": {"role": "alerts"}})
    assert not why_not(deaf, SERVICE_MONITOR, monitor(), NAMESPACES)
    assert why_not(deaf, PROMETHEUS_RULE, monitor(), NAMESPACES)
    near = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    with pytest.raises(ValueError, match="'Near' is no operator"):
        why_not(prometheus(ruleSelector=near), PROMETHEUS_RULE, monitor(), NAMESPACES)


def test_a_monitor_and_rules_that_a_prometheus_selects_pass_and_others_say_why_not() -> None:
    found: dict[Any, list[dict[str, Any]]] = {
        NAMESPACE: [{"metadata": {"name": name}} for name in NAMESPACES]
    }
    cluster: Any = SimpleNamespace(list=lambda kind, _namespace="": found.get(kind, ()))

    def looked_at() -> list[tuple[str, str, str]]:
        checks = look(cluster, operator_namespace="gpu-operator", namespace="monitoring")
        return [(check.subject, check.outcome.value, check.said) for check in checks]

    service = "ServiceMonitor gpu-operator/nvidia-dcgm-exporter"
    rules = f"PrometheusRule monitoring/{alerts.RULES_NAME}"
    (absent, no_rules) = looked_at()
    assert absent[:2] == (service, "failed")
    assert "dcgmExporter.serviceMonitor.enabled: true" in absent[2]
    assert no_rules == (rules, "failed", "it is not there; run `up` again")

    found[SERVICE_MONITOR] = [monitor()]
    metadata = {"name": alerts.RULES_NAME, "namespace": "monitoring"}
    found[PROMETHEUS_RULE] = [{"metadata": metadata, "spec": {}}]
    assert {said for _, _, said in looked_at()} == {"there is no Prometheus"}

    found[PROMETHEUS] = [prometheus(serviceMonitorSelector={"matchLabels": {"release": "kps"}})]
    why = "serviceMonitorSelector wants the label release=kps (it is not there)"
    first, second = looked_at()
    assert first == (service, "failed", f"Prometheus monitoring/kps: {why}")
    assert second == (rules, "passed", "by Prometheus monitoring/kps")
    found[PROMETHEUS].append(prometheus("all"))
    assert looked_at()[0] == (service, "passed", "by Prometheus monitoring/all")


def test_the_chart_is_told_to_select_everything_and_what_the_user_says_wins() -> None:
    given = {
        "prometheus": {"prometheusSpec": {"retention": "30d"}},
        "kubeEtcd": {"enabled": True},
        "grafana": None,
    }
    values = monitoring_stack.chart_values(
        Monitoring.KUBE_PROMETHEUS_STACK, crds_apart=True, given=given
    )
    spec = values["prometheus"]["prometheusSpec"]
    assert spec["serviceMonitorSelectorNilUsesHelmValues"] is False
    assert spec["ruleSelectorNilUsesHelmValues"] is False
    assert spec["retention"] == "30d"
    assert values["kubeEtcd"] == {"enabled": True}
    assert values["kubeScheduler"] == {"enabled": False}
    assert values["crds"] == {"enabled": False}
    assert "grafana" not in values, "no null reaches Helm"


def test_the_exporter_gets_labels_that_the_chart_selects_by_default() -> None:
    values = monitoring_stack.operator_values(Monitoring.KUBE_PROMETHEUS_STACK)["dcgmExporter"]
    assert values["serviceMonitor"]["additionalLabels"] == {"release": "kube-prometheus-stack"}
    assert values["serviceMonitor"]["relabelings"][0]["targetLabel"] == "node"
    assert values["serviceMonitor"]["honorLabels"] is False
    rancher = monitoring_stack.operator_values(Monitoring.RANCHER)["dcgmExporter"]
    assert rancher["serviceMonitor"]["additionalLabels"] == {}
    none = monitoring_stack.operator_values(Monitoring.NONE)["dcgmExporter"]
    assert none["serviceMonitor"] == {"enabled": False}
