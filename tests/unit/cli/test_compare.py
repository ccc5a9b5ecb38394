"""`gpu-clusters compare`: what two runs of the same proof are set beside, and which are refused."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.cli import compare, verify
from gpuclusters.config.stack import StackConfig, check_stack_file, parse
from gpuclusters.proof import checks as proof
from gpuclusters.proof.checks import CheckLevel
from tests.unit.cli.conftest import ROOT, Cli
from tests.unit.proof.proof_world import climbed

LADDERS = {"gke": proof.GKE, "usernetes": proof.USERNETES}


def kept(
    folder: Path, kind: str, *, price: float | None = 6.0, image: str = "aa", **more: Any
) -> Path:
    """Evidence of a training on two nodes, as `verify` keeps it."""
    cost = {"perHour": price, "currency": "USD", "pricesOf": "2026-11-20"}
    setting = {"type": kind, "isolation": f"what isolates in {kind}", **cost}
    given = {
        "about": {"cluster": f"{kind}-v100", "stack": kind, "setting": setting},
        "images": {"training": f"registry.acme.dev/t@sha256:{image}"},
        "programs": {"train.py": "11"},
    }
    return verify.keep(climbed(ladder=LADDERS[kind], **{**given, "seconds": 120, **more}), folder)


def rows(text: str) -> Mapping[str, list[str]]:
    cells = [
        [cell.strip() for cell in line.strip("│┃").split("│")]
        for line in text.splitlines()
        if "│" in line
    ]
    return {first: rest for first, *rest in cells}


def test_times_cost_and_isolation_stand_side_by_side(cli: Cli, tmp_path: Path) -> None:
    one = kept(tmp_path, "usernetes", seconds=120, price=9.0)
    other = kept(tmp_path, "gke", seconds=33, price=6.0)
    done = cli("compare", one, other)
    assert done.returncode == 0, done.stderr
    found = rows(done.stdout)
    assert found["training"] == ["2m00", "0m33"]
    assert found["cluster per hour"] == ["9.00 USD", "6.00 USD"]
    # 9 dollars for a thirtieth of an hour, 6 for 33 seconds.
    assert found["cost of the training"][0] == "0.30 USD"
    assert found["isolation"] == ["what isolates in usernetes", "what isolates in gke"]
    assert found["accuracy"] == ["0.8065", "0.8065"]
    told = json.loads(cli("compare", one, other, "--json").stdout)
    assert told["trainingCost"] == {"a": pytest.approx(0.3), "b": pytest.approx(0.055)}
    assert told["seconds"] == {"a": 120, "b": 33}

    # What no table has is not known and never zero.
    done = cli("compare", kept(tmp_path, "usernetes", price=None), other)
    assert rows(done.stdout)["cost of the training"][0] == "not known"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"level": CheckLevel(8)}, "level R9 and R8"),
        ({"image": "bb"}, "images differ in training"),
        ({"programs": {"train.py": "22"}}, "programs differ in train.py"),
        ({"epochs": 8}, "trainings of 4 and 8 epochs"),
    ],
)
def test_evidence_of_different_proofs_is_refused_in_one_message(
    cli: Cli, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    done = cli("compare", kept(tmp_path, "usernetes"), kept(tmp_path, "gke", **changes))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("error:") == 1
    assert "are of different proofs" in done.stderr
    assert said in done.stderr
    assert "[command.different-proofs]" in done.stderr
    assert "Traceback" not in done.stderr


def test_evidence_without_the_rungs_of_hosts_holds_for_a_managed_cluster_and_altered_none(
    cli: Cli, tmp_path: Path
) -> None:
    one, other = kept(tmp_path, "usernetes"), kept(tmp_path, "gke")
    assert verify.check(other) == 0
    document = json.loads(other.read_text())
    assert (document["first"], min(document["rungs"])) == ("R5", "R5")
    other.write_text(other.read_text().replace('"seconds": 120', '"seconds": 12'))
    done = cli("compare", one, other)
    assert done.returncode == 2
    assert "was altered" in done.stderr


@pytest.mark.parametrize(
    ("stack", "price"),
    [
        # Of the documents' own table: 2 × 2.895 dollars, n1-standard-4 with 100 GiB, the fee.
        ("gke-v100", pytest.approx(2 * 2.895 + 0.204 + 0.1, abs=0.01)),
        ("usernetes-v100", pytest.approx(8.69, abs=0.01)),
        ("rke2-a100", None),
        ("hgx-h100", None),
    ],
)
def test_evidence_says_what_its_cluster_costs_where_somebody_knows(
    stack: str, price: float | None
) -> None:
    config = check_stack_file(ROOT / f"Pulumi.{stack}.yaml")
    assert isinstance(config, StackConfig)
    told = compare.setting(config.section)
    assert told["type"] == config.cluster_type
    assert told["perHour"] == price
    assert told["isolation"]


def test_a_spot_machine_has_no_price() -> None:
    document = yaml.safe_load((ROOT / "Pulumi.gke-v100.yaml").read_text())["config"]
    document["gpu-clusters:gke"]["pools"][1]["provisioning"] = "spot"
    config = parse({key.removeprefix("gpu-clusters:"): value for key, value in document.items()})
    assert isinstance(config, StackConfig)
    assert compare.setting(config.section)["perHour"] is None
