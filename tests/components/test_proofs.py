"""Proofs and the gate of the device plugin: as they are declared, and as their providers see that."""

from typing import Any

import pytest

from gpuclusters.proof import resource
from tests.components.recorder import record
from tests.fixtures.tables import beside

TABLES = beside(__file__, "proofs.yaml")
CLUSTER = {"cluster": "prod", "kubeconfig": "clusters: []"}


def declared(kind: str, **changes: Any) -> dict[str, Any]:
    """Inputs as they reach the engine."""
    given = CLUSTER | TABLES["inputs"][kind] | changes
    (inputs,) = record(lambda: getattr(resource, kind)("it", **given)).of(f":{kind}").values()
    return {k: v for k, v in inputs.items() if v is not None}


def provider(kind: str) -> Any:
    return getattr(resource, f"{kind}Provider")()


@pytest.mark.parametrize(("kind", "seen"), TABLES["seen"])
def test_what_is_declared_is_taken_and_done_again_only_when_a_refresh_saw_something(
    kind: str, seen: dict[str, Any]
) -> None:
    inputs, asked = declared(kind), provider(kind)
    assert asked.check({}, inputs).failures == []
    assert not asked.diff("prod/it", inputs, inputs).changes
    assert not asked.diff("prod/it", inputs | {key: [] for key in seen}, inputs).changes
    assert asked.diff("prod/it", inputs | seen, inputs).changes


@pytest.mark.parametrize(("kind", "changes"), TABLES["another"], ids=str)
def test_another_version_node_or_training_is_another_proof_in_place(
    kind: str, changes: dict[str, Any]
) -> None:
    difference = provider(kind).diff("prod/it", declared(kind), declared(kind, **changes))
    assert (difference.changes, difference.replaces) == (True, [])


@pytest.mark.parametrize(("changes", "said"), TABLES["refused"])
def test_a_preview_refuses_what_cannot_be_run(changes: dict[str, Any], said: str) -> None:
    (failure,) = provider("ProofRun").check({}, declared("ProofRun", **changes)).failures
    assert said in failure.reason


@pytest.mark.parametrize(("kind", "missing"), TABLES["missing"])
def test_what_is_missing_is_said_before_anything_is_asked(kind: str, missing: list[str]) -> None:
    failures = provider(kind).check({}, CLUSTER).failures
    assert {failure.property for failure in failures} >= set(missing)


def test_declaring_does_not_load_the_client_of_clusters() -> None:
    assert not hasattr(resource, "PatientObjects")
