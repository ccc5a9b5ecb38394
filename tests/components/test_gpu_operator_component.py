"""The component of the GPU Operator: where its chart comes from, and values that are refused."""

import tarfile
from pathlib import Path
from typing import Any

import pytest

from components.helm import Chart
from components.rke2.gpu_operator import GpuOperator
from tests.components.recorder import Recorder, record


def declared(chart: Chart, **values: Any) -> Recorder:
    args: dict[str, Any] = {"cluster": "gpus", "kubeconfig": "k", "nodes": ["gpu-01"]}
    return record(lambda: GpuOperator("operator", chart=chart, values=values, **args))


def test_a_chart_on_this_machine_says_its_own_version_and_what_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "gpu-operator"
    (folder / "charts" / "nfd").mkdir(parents=True)
    (folder / "charts" / "nfd" / "Chart.yaml").write_text("version: 0.19.0")
    (folder / "Chart.yaml").write_text("version: v26.3.2")
    archive = tmp_path / "chart.tgz"
    with tarfile.open(archive, "w:gz") as out:
        out.add(folder, "gpu-operator")
    for reference in (folder, archive):
        assert Chart(reference=str(reference)).release == "v26.3.2"
    assert Chart(reference="oci://example.com/gpu-operator").release == ""

    (before,) = declared(Chart(reference=str(folder))).of("GpuOperatorCrds").values()
    (folder / "charts" / "nfd" / "Chart.yaml").write_text("version: 0.20.0")
    (after,) = declared(Chart(reference=str(folder))).of("GpuOperatorCrds").values()
    assert before["content"] != after["content"]


def test_null_is_refused_by_its_path_and_not_taken_out() -> None:
    with pytest.raises(ValueError, match=r"values\.driver\.version: null is no value"):
        declared(Chart(reference="gpu-operator", version="v26.7.0"), driver={"version": None})
