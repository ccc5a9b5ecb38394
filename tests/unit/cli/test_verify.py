"""`verify` on any cluster type: what is asked for, what is kept, what an altered bundle is taken for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpuclusters.cli import verify
from gpuclusters.cli.errors import CommandError, RunError, UsageError
from gpuclusters.cli.project import Project
from gpuclusters.compat import gpu_products
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.rke2_cluster import MadeCluster, Rke2Config
from gpuclusters.config.stack import ClusterType, StackConfig
from gpuclusters.proof.checks import Check, Level, Outcome
from gpuclusters.proof.evidence import PROOF, About, Evidence
from tests.fixtures.tables import beside
from tests.unit.config import documents

IMAGE = "registry.example.com/proof@sha256:" + "a" * 64
A100 = next(n for n in gpu_products.names() if n.startswith("a100-sxm"))
ABOUT = About(cluster="gpu", stack="dev", at="2026-11-22T02:00:00Z", program="1", api_server="v1")


def config(**changes: Any) -> Rke2Config:
    given: dict[str, Any] = {
        "name": "gpu",
        "hosts": {"source": "lab"},
        "version": "v1.35.7+rke2r1",
        "artifacts": {"source": "download", "checksum": "0" * 64},
        "servers": ["s-1"],
        "pools": [{"name": "a", "nodes": ["n0"], "gpu": {"product": A100, "count": 2}}],
        "operator": {"version": "v26.7.0"},
        "driver": {"source": "host", "branch": 580},
        "proof": {"level": "L1", "matmul": {"image": IMAGE, "cuda-major": 12}},
    }
    return MadeCluster.model_validate(given | changes)


def evidence(*outcomes: Outcome, said: str = "260 TFLOPS") -> Evidence:
    checks = [Check("L1", "n0", "multiplies", outcome, said) for outcome in outcomes]
    return Evidence(kind=PROOF, about=ABOUT, level="L1", checks=checks)


def test_what_is_to_be_proven_follows_from_the_configuration() -> None:
    wanted = verify.rke2_inputs(config(), "kubeconfig", Level.L1)
    assert wanted.simulated, "hosts of the lab have no GPUs"
    (node,) = wanted.nodes
    assert (node.name, dict(node.resources), node.product) == ("n0", {"nvidia.com/gpu": 2}, A100)
    assert wanted.operator == "v26.7.0"
    assert wanted.driver is not None
    assert wanted.driver.startswith("580")
    assert wanted.matmul is not None
    assert wanted.matmul.image == IMAGE
    assert verify.rke2_inputs(config(), "kubeconfig", Level.L0).tests == ()
    with pytest.raises(RunError, match="the GPUs of gpu cannot be proven: nodes: there is none"):
        verify.rke2_inputs(config(pools=[]), "kubeconfig", Level.L0)


def test_a_level_that_is_not_described_is_refused() -> None:
    with pytest.raises(UsageError, match="--level must be one of L0, L1"):
        verify.rke2_level(config(), "L9")
    with pytest.raises(UsageError, match="needs tests that the configuration does not"):
        verify.rke2_level(config(), "L2")
    assert verify.rke2_level(config(), "l0") is Level.L0
    assert verify.rke2_level(config(), None) is Level.L1


@pytest.mark.parametrize("options", [{"api": "https://x"}, {"tokens": ["a=b"]}])
def test_options_of_another_cluster_type_are_refused(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stack = StackConfig(ClusterType.RKE2, config())
    monkeypatch.setattr(verify, "read_valid", lambda *_: stack)
    with pytest.raises(UsageError, match="--api and --token are of caas"):
        verify.run(verify.Request(Project.find(), "dev", **options), folder=tmp_path)


PROOF_OF_ACME = {"tenant": "acme", "image": IMAGE}
PROOFS = beside(__file__, "verify.yaml")


def caas(**changes: Any) -> CaasConfig:
    return CaasConfig.model_validate(documents.base()["caas"] | changes)


def test_the_proof_is_part_of_what_is_verified_where_it_is_described() -> None:
    assert verify.caas_levels(caas(), None) == ["isolation"]
    assert verify.caas_levels(caas(proof=PROOF_OF_ACME), None) == ["isolation", "proof"]
    assert verify.caas_levels(caas(proof=PROOF_OF_ACME), "proof") == ["proof"]
    with pytest.raises(UsageError, match="--level must be one of isolation, proof"):
        verify.caas_levels(caas(), "L1")


@pytest.mark.parametrize("row", PROOFS, ids=lambda row: row["said"])
def test_a_proof_without_what_it_needs_is_refused_before_anything_is_asked(
    row: dict[str, Any],
) -> None:
    api = {"api": "https://api.example.com"} if row.get("reached") else {}
    proof = {"proof": PROOF_OF_ACME | row["proof"]} if "proof" in row else {}
    existing = documents.on_existing("10.20.0.11")["caas"]
    with pytest.raises(CommandError, match=row["said"]):
        verify.container_proof(
            verify.Request(Project.find(), "dev", **api),
            CaasConfig.model_validate(existing | proof),
        )


def test_a_bundle_is_json_markdown_and_their_digests_and_is_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = verify.keep(evidence(Outcome.PASSED), tmp_path)
    assert path.name == "proof-gpu-20261122T020000Z.json"
    names = sorted(file.suffix for file in tmp_path.iterdir())
    assert names == [".json", ".md", ".sha256"]
    assert verify.check(path) == 0
    assert "worked on 2026-11-22T02:00:00Z: L1, 1 checks, all passed" in capsys.readouterr().out
    path.with_suffix(".md").unlink()
    assert verify.check(path) == 0, "JSON alone is evidence"


@pytest.mark.parametrize(
    ("suffix", "old", "new", "fault"),
    [
        (".json", "260 TFLOPS", "900 TFLOPS", "was altered"),
        (".md", "260 TFLOPS", "900 TFLOPS", "is not the bundle's any more"),
        (".json", '"format": 1', '"format": 2', "a newer gpu-clusters may read it"),
    ],
)
def test_an_altered_bundle_is_none(
    suffix: str, old: str, new: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = verify.keep(evidence(Outcome.PASSED), tmp_path)
    file = path.with_suffix(suffix)
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    assert verify.check(path, as_json=True) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["valid"] is False
    assert any(fault in one for one in answer["faults"])


def test_what_cannot_be_read_is_a_mistake_of_the_caller_and_what_is_said_is_shown_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        verify.check(tmp_path / "none.json")
    console = Console(highlight=False, width=200)
    verify.show(evidence(Outcome.FAILED, said="pod p: [bold]x[/bold] [/red]"), console)
    assert "failed L1 n0: multiplies (pod p: [bold]x[/bold] [/red])" in capsys.readouterr().out
