"""The lab's stand-ins of charts, rendered by Helm: they take and refuse what the real ones do."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.metrics import monitoring_stack
from gpuclusters.metrics.monitoring_stack import NAMES, Monitoring
from gpuclusters.metrics.selection import PROMETHEUS_RULE, SERVICE_MONITOR, why_not
from lab import tools
from tests.fixtures.tables import beside

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("tools_at_hand")]
REFUSED = beside(__file__, "charts.yaml")
KIND = Monitoring.KUBE_PROMETHEUS_STACK
NAMESPACES: dict[str, dict[str, str]] = {"monitoring": {}, "gpu-operator": {}}


def render(chart: str, values: Any) -> subprocess.CompletedProcess[str]:
    folder = Path(__file__).parents[2] / "lab" / "charts" / chart
    release = NAMES[KIND].release if chart == "kube-prometheus-stack" else chart
    command = [tools.resolve("helm"), "template", release, folder, "--include-crds"]
    return subprocess.run(
        [*command, "--namespace", "monitoring", "--values", "-"],
        input=yaml.safe_dump(values),
        capture_output=True,
        text=True,
        check=False,
    )


def rendered(values: Any) -> list[dict[str, Any]]:
    done = render("kube-prometheus-stack", values)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def monitor(labels: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "m", "namespace": "gpu-operator", "labels": labels}}


def test_with_our_values_the_exporter_is_selected_and_with_the_charts_own_it_is_not() -> None:
    def kinds(documents: list[dict[str, Any]]) -> set[str]:
        definitions = [one for one in documents if one["kind"] == "CustomResourceDefinition"]
        return {one["spec"]["names"]["kind"] for one in definitions}

    def prometheus(documents: list[dict[str, Any]]) -> dict[str, Any]:
        (found,) = [one for one in documents if one["kind"] == "Prometheus"]
        return found

    values = monitoring_stack.chart_values(KIND, crds_apart=False, given={})
    with_ours = rendered(values)
    ours, theirs = prometheus(with_ours), prometheus(rendered({}))
    for what, key in (
        (SERVICE_MONITOR, "serviceMonitorSelector"),
        (PROMETHEUS_RULE, "ruleSelector"),
    ):
        assert why_not(ours, what, monitor({}), NAMESPACES) == []
        assert why_not(theirs, what, monitor({}), NAMESPACES) == [
            f"{key} wants the label release=kube-prometheus-stack (it is not there)"
        ]
        # The label alone is enough too, for a chart that was installed by somebody else.
        labelled = monitor(dict(monitoring_stack.monitor_labels(KIND)))
        assert why_not(theirs, what, labelled, NAMESPACES) == []
    # The kinds come with the chart or apart.
    assert kinds(with_ours) == {"ServiceMonitor", "PodMonitor", "PrometheusRule", "Prometheus"}
    apart = monitoring_stack.chart_values(KIND, crds_apart=True, given={})
    assert kinds(rendered(apart)) == set()


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row["values"])
def test_a_chart_refuses_what_the_real_one_refuses(row: dict[str, str]) -> None:
    done = render(row["chart"], yaml.safe_load(row["values"]))
    assert (done.returncode != 0) == bool(row["refusal"])
    assert row["refusal"] in done.stderr
