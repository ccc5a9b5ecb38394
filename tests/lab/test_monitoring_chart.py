"""The stand-in of kube-prometheus-stack, rendered by Helm with our values."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.metrics import monitoring_stack
from gpuclusters.metrics.monitoring_stack import NAMES, Monitoring
from gpuclusters.metrics.selection import PROMETHEUS_RULE, SERVICE_MONITOR, why_not
from lab import tools

pytestmark = pytest.mark.lab
CHART = Path(__file__).parents[2] / "lab" / "charts" / "kube-prometheus-stack"
KIND = Monitoring.KUBE_PROMETHEUS_STACK
NAMESPACES: dict[str, dict[str, str]] = {"monitoring": {}, "gpu-operator": {}}


def render(folder: Path, values: Any) -> subprocess.CompletedProcess[str]:
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    command = [tools.resolve("helm"), "template", NAMES[KIND].release, CHART, "--include-crds"]
    return subprocess.run(
        [*map(str, command), "--namespace", "monitoring", "--values", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )


def rendered(folder: Path, values: Any) -> list[dict[str, Any]]:
    done = render(folder, values)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def prometheus(folder: Path, values: Any) -> dict[str, Any]:
    (found,) = [one for one in rendered(folder, values) if one["kind"] == "Prometheus"]
    return found


def monitor(labels: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "m", "namespace": "gpu-operator", "labels": labels}}


def test_with_our_values_the_exporter_is_selected_and_with_the_charts_own_it_is_not(
    tmp_path: Path,
) -> None:
    values = monitoring_stack.chart_values(KIND, crds_apart=False, given={})
    ours, theirs = prometheus(tmp_path, values), prometheus(tmp_path, {})
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


def test_the_kinds_come_with_the_chart_or_apart(tmp_path: Path) -> None:
    def kinds(*, crds_apart: bool) -> set[str]:
        values = monitoring_stack.chart_values(KIND, crds_apart=crds_apart, given={})
        return {
            one["spec"]["names"]["kind"]
            for one in rendered(tmp_path, values)
            if one["kind"] == "CustomResourceDefinition"
        }

    assert kinds(crds_apart=False) == {
        "ServiceMonitor",
        "PodMonitor",
        "PrometheusRule",
        "Prometheus",
    }
    assert kinds(crds_apart=True) == set()


def test_a_key_that_the_chart_does_not_know_is_refused(tmp_path: Path) -> None:
    done = render(tmp_path, {"promotheus": {}})
    assert done.returncode != 0
    assert "'promotheus' not allowed" in done.stderr
