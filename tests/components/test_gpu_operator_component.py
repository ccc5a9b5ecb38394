"""What the components of the GPU Operator declare, without an engine."""

import tarfile
from pathlib import Path
from typing import Any

import pytest

from components.helm import Chart
from components.rke2.gpu_operator import (
    GpuOperator,
    GpuSharing,
    MigNode,
)
from gpuclusters.gpu_operator import objects
from tests.components.recorder import Recorder, record

CSV = {"dcgm-metrics.csv": "DCGM_FI_DEV_GPU_TEMP, gauge, temperature"}
SLICED = MigNode(layout="all-1g.10gb", expected={"nvidia.com/mig-1g.10gb": 56})


@pytest.fixture(params=[False, True], ids=["up", "preview"])
def preview(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


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


def test_the_operator_is_one_release_without_definitions(preview: bool) -> None:
    (release,) = declared(args(), preview=preview).of(":Release").values()
    assert release["name"] == release["namespace"] == release["chart"] == "gpu-operator"
    assert release["version"] == "v26.7.0"
    assert release["repositoryOpts"] == {"repo": "https://helm.ngc.nvidia.com/nvidia"}
    assert release["skipCrds"] is True
    assert release["timeout"] == 900
    assert release["atomic"] is False
    assert release["cleanupOnFail"] is False
    assert release["values"] == {"driver": {"enabled": False}}


def test_the_namespace_lets_operands_in_under_the_cis_profile(preview: bool) -> None:
    (namespace,) = declared(args(), preview=preview).of(":Namespace").values()
    assert namespace["metadata"]["name"] == "gpu-operator"
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


def test_nothing_of_ours_is_called_as_what_rke2_and_the_operator_make() -> None:
    engine = declared(args())
    assert not engine.of(":RuntimeClass")
    assert not engine.of(":CustomResourceDefinition")


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


def test_a_config_map_is_named_by_its_content_in_the_cluster_and_in_the_values() -> None:
    engine = declared(args(configs={"dcgm-metrics": CSV}))
    (config,) = engine.of(":ConfigMap").values()
    (release,) = engine.of(":Release").values()
    name = objects.config_map_name("dcgm-metrics", CSV)
    assert config["metadata"] == {"name": name, "namespace": "gpu-operator"}
    assert config["data"] == CSV
    assert release["values"]["dcgmExporter"]["config"] == {"create": False, "name": name}


def test_null_is_refused_by_its_path_and_not_taken_out() -> None:
    with pytest.raises(ValueError, match=r"values\.driver\.version: null is no value"):
        declared(args(values={"driver": {"version": None}}))


def sharing(**changes: Any) -> Recorder:
    values: dict[str, Any] = {"cluster": "gpus", "kubeconfig": "k"}
    return record(lambda: GpuSharing("sharing", **values | changes))


def test_each_node_has_a_layout_of_its_own() -> None:
    other = MigNode(layout="all-disabled", expected={"nvidia.com/gpu": 8})
    engine = sharing(mig={"gpu-01": SLICED, "gpu-02": other})
    layouts = engine.of("MigLayout")
    assert {name: one["layout"] for name, one in layouts.items()} == {
        "gpu-01-mig": "all-1g.10gb",
        "gpu-02-mig": "all-disabled",
    }
    assert layouts["gpu-01-mig"]["expected"] == {"nvidia.com/mig-1g.10gb": 56}
    assert layouts["gpu-01-mig"]["evict"] is False


def test_time_slicing_is_chosen_by_a_label_that_is_taken() -> None:
    engine = sharing(plugin_configs={"gpu-01": "sliced"})
    (patch,) = engine.of(":NodePatch").values()
    assert patch["metadata"]["name"] == "gpu-01"
    assert patch["metadata"]["labels"] == {"nvidia.com/device-plugin.config": "sliced"}
    assert patch["metadata"]["annotations"]["pulumi.com/patchForce"] == "true"
