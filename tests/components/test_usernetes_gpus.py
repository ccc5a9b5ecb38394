"""The device plugin and the proof of a rootless cluster as declared, and as their providers see them."""

import importlib
from typing import Any

import pytest

from components.usernetes import GpuPlugin
from gpuclusters.compat.usernetes_versions import version_set
from gpuclusters.proof.model import LadderInputs
from gpuclusters.proof.resource import PluginGateProvider, TrainingProof, TrainingProofProvider
from tests.components.recorder import Recorder, record

NODES = {"a": 2, "b": 2}
IMAGE = f"registry.example.com/train@sha256:{'a' * 64}"


def plugin(**changes: Any) -> Recorder:
    args: dict[str, Any] = {
        "cluster": "v100",
        "kubeconfig": "clusters: []",
        "versions": version_set("current"),
        "nodes": NODES,
    }
    return record(lambda: GpuPlugin("gpus", **(args | changes)))


def proof(**changes: Any) -> Recorder:
    args: dict[str, Any] = {
        "cluster": "v100",
        "kubeconfig": "clusters: []",
        "rung": 9,
        "nodes": [{"name": name, "gpus": gpus} for name, gpus in NODES.items()],
        "training": {"image": IMAGE},
        "versions": {"driver": "580.159.04"},
        "programs": "a" * 64,
    }
    return record(lambda: TrainingProof("proof", **(args | changes)))


def of(recorder: Recorder, kind: str) -> dict[str, Any]:
    (inputs,) = recorder.of(kind).values()
    return {k: v for k, v in inputs.items() if v is not None}


def test_another_set_of_versions_is_another_plugin_and_another_look() -> None:
    old = plugin(versions=version_set("proven"))
    (container,) = of(old, "apps/v1:DaemonSet")["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(":v0.18.2")
    before, after = of(old, ":PluginGate"), of(plugin(), ":PluginGate")
    difference = PluginGateProvider().diff("v100/device-plugin", before, after)
    assert difference.changes
    assert difference.replaces == []


def test_the_exporter_comes_only_where_it_is_wanted() -> None:
    assert len(plugin().of("apps/v1:DaemonSet")) == 1
    more = plugin(metrics=True)
    made = more.of("apps/v1:DaemonSet")["gpus-exporter"]
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("nvcr.io/nvidia/k8s/dcgm-exporter:4.6.1")
    assert container["ports"] == [{"name": "metrics", "containerPort": 9400}]
    (service,) = more.of(":Service").values()
    assert service["spec"]["selector"] == made["spec"]["selector"]["matchLabels"]


def test_the_gate_takes_what_the_component_declares_and_tells_of_drift() -> None:
    inputs, provider = of(plugin(), ":PluginGate"), PluginGateProvider()
    assert provider.check({}, inputs).failures == []
    assert inputs["expected"] == NODES
    assert not provider.diff("v100/device-plugin", inputs | {"drift": []}, inputs).changes
    assert provider.diff(
        "v100/device-plugin", inputs | {"drift": [{"code": "gpu.plugin"}]}, inputs
    ).changes
    assert of(plugin(), ":RuntimeClass")["handler"] == "nvidia"


def test_the_inputs_of_the_proof_are_the_ladders() -> None:
    inputs = of(proof(rung_seconds=60), "gpu-clusters:gpu:TrainingProof")
    assert TrainingProofProvider().check({}, inputs).failures == []
    wanted = LadderInputs.model_validate(inputs, by_name=True)
    assert wanted.rung_seconds == 60
    assert not TrainingProofProvider().diff("v100/ladder", inputs, inputs).changes


@pytest.mark.parametrize(
    "changes",
    [
        {"versions": {"driver": "580.178.04"}},
        {"nodes": [{"name": "a", "gpus": 2}]},
        {"training": {"image": IMAGE, "epochs": 8}},
    ],
)
def test_other_versions_nodes_or_training_climb_again_in_place(changes: dict[str, Any]) -> None:
    before, after = of(proof(), "gpu:TrainingProof"), of(proof(**changes), "gpu:TrainingProof")
    difference = TrainingProofProvider().diff("v100/ladder", before, after)
    assert difference.changes
    assert difference.replaces == []


def test_a_refresh_that_finds_another_node_is_a_difference() -> None:
    inputs, provider = of(proof(), "gpu:TrainingProof"), TrainingProofProvider()
    assert not provider.diff("v100/ladder", inputs | {"stale": []}, inputs).changes
    assert provider.diff("v100/ladder", inputs | {"stale": ["a: uid"]}, inputs).changes


def test_declaring_does_not_load_the_client_of_clusters() -> None:
    module = importlib.import_module("gpuclusters.proof.resource")
    assert not hasattr(module, "PatientObjects")
