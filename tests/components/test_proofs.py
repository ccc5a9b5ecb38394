"""Proofs and the gate of the device plugin: as they are declared, and as their providers see that."""

import importlib
from typing import Any

import pytest

from gpuclusters.proof import resource
from tests.components.recorder import record

IMAGE = "registry.example.com/proof@sha256:" + "a" * 64
NODE = {"name": "n0", "resources": {"nvidia.com/gpu": 8}}
CLUSTER = {"cluster": "prod", "kubeconfig": "clusters: []"}
INPUTS: dict[str, dict[str, Any]] = {
    "ProofRun": {
        "level": "L1",
        "nodes": [NODE],
        "matmul": {"image": IMAGE, "cuda_major": 12},
        "programs": "a" * 64,
        "driver": "580.178.04",
        "operator": "v26.7.0",
    },
    "TrainingProof": {
        "rung": 9,
        "rung_seconds": 60,
        "nodes": [{"name": "a", "gpus": 2}, {"name": "b", "gpus": 2}],
        "training": {"image": IMAGE},
        "versions": {"driver": "580.159.04"},
        "programs": "a" * 64,
    },
    "PluginGate": {"expected": {"a": 2, "b": 2}},
}


def declared(kind: str, **changes: Any) -> dict[str, Any]:
    """Inputs as they reach the engine."""
    recorder = record(lambda: getattr(resource, kind)("it", **CLUSTER, **(INPUTS[kind] | changes)))
    (inputs,) = recorder.of(f":{kind}").values()
    return {k: v for k, v in inputs.items() if v is not None}


def provider(kind: str) -> Any:
    return getattr(resource, f"{kind}Provider")()


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        ("ProofRun", {"stale": ["n0: driver"]}),
        ("TrainingProof", {"stale": ["a: uid"]}),
        ("PluginGate", {"drift": [{"code": "gpu.plugin"}]}),
    ],
)
def test_what_is_declared_is_taken_and_done_again_only_when_a_refresh_saw_something(
    kind: str, seen: dict[str, Any]
) -> None:
    inputs, asked = declared(kind), provider(kind)
    assert asked.check({}, inputs).failures == []
    assert not asked.diff("prod/it", inputs, inputs).changes
    assert not asked.diff("prod/it", inputs | {key: [] for key in seen}, inputs).changes
    assert asked.diff("prod/it", inputs | seen, inputs).changes


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("ProofRun", {"driver": "595.91.07"}),
        ("ProofRun", {"operator": "v26.7.1"}),
        ("ProofRun", {"level": "L0"}),
        ("ProofRun", {"nodes": [NODE, NODE]}),
        ("TrainingProof", {"versions": {"driver": "580.178.04"}}),
        ("TrainingProof", {"nodes": [{"name": "a", "gpus": 2}]}),
        ("TrainingProof", {"training": {"image": IMAGE, "epochs": 8}}),
        ("PluginGate", {"expected": {"a": 2}}),
        ("PluginGate", {"triggers": ["another plugin"]}),
    ],
    ids=str,
)
def test_another_version_node_or_training_is_another_proof_in_place(
    kind: str, changes: dict[str, Any]
) -> None:
    difference = provider(kind).diff("prod/it", declared(kind), declared(kind, **changes))
    assert (difference.changes, difference.replaces) == (True, [])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"matmul": {"image": "pytorch:latest", "cuda_major": 12}}, "by its digest"),
        ({"matmul": None}, "level L1 needs it"),
        ({"level": "L9"}, "L9"),
    ],
)
def test_a_preview_refuses_what_cannot_be_run(changes: dict[str, Any], said: str) -> None:
    (failure,) = provider("ProofRun").check({}, declared("ProofRun", **changes)).failures
    assert said in failure.reason


@pytest.mark.parametrize(
    ("kind", "missing"), [("TrainingProof", {"rung", "nodes"}), ("PluginGate", {"expected"})]
)
def test_what_is_missing_is_said_before_anything_is_asked(kind: str, missing: set[str]) -> None:
    failures = provider(kind).check({}, CLUSTER).failures
    assert {failure.property for failure in failures} >= missing


def test_declaring_does_not_load_the_client_of_clusters() -> None:
    assert not hasattr(importlib.import_module("gpuclusters.proof.resource"), "PatientObjects")
