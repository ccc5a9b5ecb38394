"""The proof of an rke2 cluster as it is declared, and as the provider sees its inputs."""

from typing import Any

import pytest

from gpuclusters.proof.resource import ProofRun, ProofRunProvider
from tests.components.recorder import record

IMAGE = "registry.example.com/proof@sha256:" + "a" * 64
NODE = {"name": "n0", "resources": {"nvidia.com/gpu": 8}}


def declared(**changes: Any) -> dict[str, Any]:
    args: dict[str, Any] = {
        "cluster": "prod",
        "kubeconfig": "clusters: []",
        "level": "L1",
        "nodes": [NODE],
        "matmul": {"image": IMAGE, "cuda_major": 12},
        "programs": "a" * 64,
        "driver": "580.178.04",
        "operator": "v26.7.0",
    }
    recorder = record(lambda: ProofRun("proof", **(args | changes)))
    (inputs,) = recorder.of(":ProofRun").values()
    return {k: v for k, v in inputs.items() if v is not None}


def test_what_is_declared_the_provider_takes() -> None:
    inputs = declared()
    provider = ProofRunProvider()
    assert provider.check({}, inputs).failures == []
    assert not provider.diff("prod/proof", inputs, inputs).changes


@pytest.mark.parametrize(
    "changes",
    [{"driver": "595.91.07"}, {"operator": "v26.7.1"}, {"level": "L0"}, {"nodes": [NODE, NODE]}],
)
def test_another_driver_operator_level_or_node_is_another_proof_in_place(
    changes: dict[str, Any],
) -> None:
    difference = ProofRunProvider().diff("prod/proof", declared(), declared(**changes))
    assert difference.changes
    assert difference.replaces == []


def test_a_proof_that_went_stale_is_a_difference() -> None:
    inputs = declared()
    provider = ProofRunProvider()
    assert not provider.diff("prod/proof", inputs | {"stale": []}, inputs).changes
    assert provider.diff("prod/proof", inputs | {"stale": ["n0: driver"]}, inputs).changes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"matmul": {"image": "pytorch:latest", "cuda_major": 12}}, "by its digest"),
        ({"matmul": None}, "level L1 needs it"),
        ({"level": "L9"}, "L9"),
    ],
)
def test_a_preview_refuses_what_cannot_be_run(changes: dict[str, Any], said: str) -> None:
    (failure,) = ProofRunProvider().check({}, declared(**changes)).failures
    assert said in failure.reason
