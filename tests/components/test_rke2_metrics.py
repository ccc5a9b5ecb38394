"""Metrics of an rke2 cluster as a component."""

import json
from typing import Any

from components.helm import Chart
from components.rke2.metrics import Metrics
from gpuclusters.metrics.monitoring_stack import Monitoring
from tests.components.recorder import Recorder, record

CHART = Chart(reference="kube-prometheus-stack", version="92.11.0", repository="https://charts.x")
RANCHER = {
    "kind": Monitoring.RANCHER,
    "chart": Chart(reference="rancher-monitoring", version="1.0.0", repository="https://r.x"),
    "crd_chart": Chart(
        reference="rancher-monitoring-crd", version="1.0.0", repository="https://r.x"
    ),
}
ORIGIN = {"kind": Monitoring.KUBE_PROMETHEUS_STACK, "chart": CHART}


def metrics(**changes: Any) -> Recorder:
    args: dict[str, Any] = {**ORIGIN, "expected": {"n0": {"nvidia.com/gpu": 8}}, **changes}
    return record(lambda: Metrics("metrics", **args))


def test_the_namespace_is_privileged_before_the_chart_and_dashboards_lie_where_grafana_looks() -> (
    None
):
    recorder = metrics()
    (space,) = recorder.of("v1:Namespace").values()
    assert space["metadata"]["name"] == "monitoring"
    labels = space["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    (release,) = recorder.of("helm.sh/v3:Release").values()
    assert release["name"] == "kube-prometheus-stack"
    assert release["version"] == "92.11.0"
    assert release["repositoryOpts"] == {"repo": "https://charts.x"}
    assert release["values"]["crds"] == {"enabled": True}
    dashboards = recorder.of("v1:ConfigMap")
    assert sorted(dashboards) == ["metrics-rke2-fleet", "metrics-rke2-health"]
    for dashboard in dashboards.values():
        assert dashboard["metadata"]["namespace"] == "monitoring"
        assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
        (text,) = dashboard["data"].values()
        assert json.loads(text)["uid"].startswith("gpu-clusters-rke2-")


def test_rules_say_what_each_node_must_offer_and_carry_the_charts_label() -> None:
    recorder = metrics()
    (rule,) = recorder.of(":PrometheusRule").values()
    assert rule["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    (expected,) = rule["spec"]["groups"][0]["rules"]
    assert expected["labels"] == {"node": "n0", "resource": "nvidia_com_gpu"}


def test_rancher_has_its_kinds_in_a_release_of_their_own_and_its_own_place_for_dashboards() -> None:
    recorder = metrics(**RANCHER)
    releases = {r["name"]: r for r in recorder.of("helm.sh/v3:Release").values()}
    assert set(releases) == {"rancher-monitoring-crd", "rancher-monitoring"}
    assert {r["namespace"] for r in releases.values()} == {"cattle-monitoring-system"}
    assert releases["rancher-monitoring"]["values"]["rke2Etcd"] == {"enabled": True}
    assert {m["metadata"]["namespace"] for m in recorder.of("v1:ConfigMap").values()} == {
        "cattle-dashboards"
    }
