"""Metrics of an rke2 cluster as a component."""

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


def test_rancher_has_its_kinds_in_a_release_of_their_own_and_its_own_place_for_dashboards() -> None:
    recorder = metrics(**RANCHER)
    releases = {r["name"]: r for r in recorder.of("helm.sh/v3:Release").values()}
    assert set(releases) == {"rancher-monitoring-crd", "rancher-monitoring"}
    assert {r["namespace"] for r in releases.values()} == {"cattle-monitoring-system"}
    assert releases["rancher-monitoring"]["values"]["rke2Etcd"] == {"enabled": True}
    assert {m["metadata"]["namespace"] for m in recorder.of("v1:ConfigMap").values()} == {
        "cattle-dashboards"
    }
