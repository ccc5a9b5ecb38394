"""What the components of the GPU Operator declare, without an engine."""

import tarfile
from pathlib import Path
from typing import Any

import pytest

from components.helm import Chart
from components.rke2.gpu_operator import (
    GpuOperator,
    GpuSharing,
)
from gpuclusters.gpu_operator import objects
from tests.components.recorder import Recorder, record


def args(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "cluster": "gpus",
        "kubeconfig": "apiVersion: v1",
        "chart": Chart(reference="gpu-operator", version="v26.7.0", repository=objects.REPOSITORY),
        "values": {"driver": {"enabled": False}},
        "nodes": ["gpu-02", "gpu-01"],
    }
    return values | changes


def declared(wanted: dict[str, Any], *, preview: bool = False) -> Recorder:
    return record(lambda: GpuOperator("operator", **wanted), preview=preview)


def test_definitions_are_of_the_version_of_the_release(preview: bool) -> None:
    (crds,) = declared(args(), preview=preview).of("GpuOperatorCrds").values()
    assert (crds["reference"], crds["version"]) == ("gpu-operator", "v26.7.0")
    assert crds["repository"] == "https://helm.ngc.nvidia.com/nvidia"
    assert crds["with_nfd"] is True
    (without,) = declared(args(values={"nfd": {"enabled": False}})).of("GpuOperatorCrds").values()
    assert without["with_nfd"] is False


def test_a_chart_beside_the_stack_says_its_own_version(tmp_path: Path) -> None:
    folder = tmp_path / "gpu-operator"
    (folder / "charts" / "nfd").mkdir(parents=True)
    (folder / "charts" / "nfd" / "Chart.yaml").write_text("version: 0.19.0")
    (folder / "Chart.yaml").write_text("version: v26.3.2")
    archive = tmp_path / "chart.tgz"
    with tarfile.open(archive, "w:gz") as out:
        out.add(folder, "gpu-operator")
    for reference in (folder, archive):
        engine = declared(args(chart=Chart(reference=str(reference))))
        (look,) = engine.of("GpuOperatorPreflight").values()
        assert look["version"] == "v26.3.2"
    assert Chart(reference="oci://example.com/gpu-operator").release == ""


def test_another_chart_at_the_same_path_is_another_input(tmp_path: Path) -> None:
    (tmp_path / "Chart.yaml").write_text("version: v26.3.0")
    wanted = args(chart=Chart(reference=str(tmp_path)))
    (before,) = declared(wanted).of("GpuOperatorCrds").values()
    (tmp_path / "Chart.yaml").write_text("version: v26.7.0")
    (after,) = declared(wanted).of("GpuOperatorCrds").values()
    assert before["content"] != after["content"]


def test_the_cluster_is_looked_at_with_what_the_values_say() -> None:
    taint = {"key": "team", "operator": "Exists"}
    values = {"cdi": {"enabled": False}, "daemonsets": {"tolerations": [taint]}}
    (look,) = declared(args(values=values)).of("GpuOperatorPreflight").values()
    assert look["nodes"] == ["gpu-01", "gpu-02"]
    assert look["cdi"] is False
    assert look["tolerations"] == [taint]
    (other,) = declared(args()).of("GpuOperatorPreflight").values()
    assert look["values_digest"] != other["values_digest"]


def test_null_is_refused_by_its_path_and_not_taken_out() -> None:
    with pytest.raises(ValueError, match=r"values\.driver\.version: null is no value"):
        declared(args(values={"driver": {"version": None}}))


def sharing(**changes: Any) -> Recorder:
    values: dict[str, Any] = {"cluster": "gpus", "kubeconfig": "k"}
    return record(lambda: GpuSharing("sharing", **values | changes))


def test_time_slicing_is_chosen_by_a_label_that_is_taken() -> None:
    engine = sharing(plugin_configs={"gpu-01": "sliced"})
    (patch,) = engine.of(":NodePatch").values()
    assert patch["metadata"]["name"] == "gpu-01"
    assert patch["metadata"]["labels"] == {"nvidia.com/device-plugin.config": "sliced"}
    assert patch["metadata"]["annotations"]["pulumi.com/patchForce"] == "true"
