"""`gpu-clusters review` and `draw` as an operator and a pipeline call them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gpuclusters.cli import draw
from gpuclusters.cli.errors import RunError, UsageError
from gpuclusters.cli.forge import Forge
from gpuclusters.cli.main import app
from gpuclusters.cli.review import Format, command
from gpuclusters.drawing.from_configuration import with_state
from gpuclusters.drawing.picture import Machine, Partition, Picture, Tenant
from gpuclusters.review.cost import OwnMachine, price_table
from tests.review.catalogue import handmade, loading
from tests.review.forge_standin import forge

ROOT = Path(__file__).resolve().parents[2]
MORE = "machine-added-on-google-cloud"


@pytest.fixture
def plans(tmp_path: Path) -> dict[str, str]:
    made = {}
    for name in ("tenant-added", "tenant-removed", "zone-moved", "nothing", MORE):
        path = tmp_path / f"{name}.json"
        path.write_text(loading.text(name))
        made[name] = str(path)
    return made


def run(files: list[str], names: list[str] | None = None, **options: Any) -> int:
    with pytest.raises(typer.Exit) as ended:
        command(files, names, **options)
    return ended.value.exit_code


def test_a_file_is_reviewed_and_printed(
    plans: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([plans["tenant-added"]]) == 0
    assert capsys.readouterr().out.startswith("## 🟢 safe: stack `prod`")


def test_standard_input_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = io.TextIOWrapper(io.BytesIO(loading.text("nothing").encode()))
    monkeypatch.setattr(sys, "stdin", given)
    assert run(["-"], format_=Format.JSON) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "no-changes"


def test_several_stacks_are_one_comment_with_the_worst_first(
    plans: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(loading.text("nothing")[:5000])
    files = [plans["tenant-added"], plans["tenant-removed"], str(broken)]
    assert run(files, ["a", "b", "c"]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("## ⛔ the preview failed: 3 stacks")
    assert "### 🔴 dangerous: stack `prod`" in said.out
    assert "Nothing can be said" in said.out
    assert "error: c: " in said.err


@pytest.mark.parametrize(
    ("gate", "plan", "code"),
    [
        ("delete", "tenant-removed", 5), ("delete", "tenant-added", 0), ("replace", "zone-moved", 5),
        ("policy", "tenant-removed", 5), ("policy", "tenant-added", 0), ("dangerous", "zone-moved", 5),
        ("look", "tenant-added", 0), ("cost>4000", "zone-moved", 5), ("cost>5000", "zone-moved", 0),
        ("delete, cost>1", "nothing", 0), ("unknown-cost", "nothing", 0),
    ],
)  # fmt: skip
def test_a_gate_stops_the_pipeline(plans: dict[str, str], gate: str, plan: str, code: int) -> None:
    assert run([plans[plan]], fail_on=gate) == code


def test_the_file_of_the_policy_pack_sets_the_rules_of_a_review(
    plans: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "policy.json"

    def code(plan: str, settings: dict[str, object], *more: str) -> int:
        file.write_text(json.dumps(settings))
        command = [plans[plan], "--policy", str(file), "--fail-on", "policy", *more]
        return CliRunner().invoke(app, ["review", *command]).exit_code

    assert code("tenant-removed", {}) == 5
    assert code("tenant-removed", {"stateful-delete": "advisory"}) == 0
    assert code("tenant-removed", {"all": "disabled"}) == 0
    # What is said on the command line goes over the file.
    assert code("tenant-removed", {}, "--severity", "stateful-delete=off") == 0
    stricter = ("--severity", "stateful-delete=mandatory")
    assert code("tenant-removed", {"all": "disabled"}, *stricter) == 5
    assert code(MORE, {"budget": {"monthly": 3000}}) == 5
    assert code(MORE, {"budget": {"monthly": 3000}}, "--budget", "5000") == 0
    regions = {"us-central1": {"gpus": {"nvidia-tesla-v100": 90}}}
    own = {"as-of": "2026-11-01", "google-cloud": {"regions": regions}}
    assert code(MORE, {"budget": {"monthly": 5000}}) == 0
    assert code(MORE, {"budget": {"monthly": 5000, "prices": own}}) == 5
    # What cost as much before is nothing that this change brings.
    assert code("zone-moved", {"budget": {"monthly": 1000}}) == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"fail_on": "delet"}, "'delet' is no gate"),
        ({"severity": ["host-keys=off"]}, "did you mean host-key"),
        ({"severity": ["unpinned=maybe"]}, "write mandatory, advisory or"),
        ({"prices": Path("/nonexistent.yaml")}, "cannot be read"),
        ({"policy": Path("/nonexistent.json")}, "cannot be read"),
        ({"files": ["/nonexistent"]}, "cannot be read"),
        ({"names": ["a", "b"]}, "as many --stack as files"),
    ],
)
def test_a_wrong_option_is_said(plans: dict[str, str], options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        run(**{"files": [plans["nothing"]], **options})


def test_all_forms_are_written_and_the_same_each_time(
    plans: dict[str, str], tmp_path: Path
) -> None:
    for folder in ("one", "two"):
        assert run([plans["tenant-removed"]], output=tmp_path / folder) == 0
    for name in ("review.md", "review.html", "review.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    page = (tmp_path / "one" / "review.html").read_text()
    assert '<meta name="viewport"' in page
    assert "prefers-color-scheme:dark" in page
    assert "<svg" in page


def test_a_folder_that_cannot_be_written_is_said(plans: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        run([plans["nothing"]], output=tmp_path / "taken")


def test_a_comment_that_the_forge_finds_too_long_is_made_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [
        handmade.step("update", "a:b:C", f"r{n}", {"v": "😀" * 70}, {"v": "é" * 70})
        for n in range(400)
    ]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(handmade.plan(*steps)))
    with forge() as standin:
        for name, value in standin.environment(Forge.GITHUB).items():
            monkeypatch.setenv(name, value)
        assert run([str(path)], comment=Forge.GITHUB) == 0
        assert len(standin.comments) == 1
        assert "Cut to what the forge takes" in standin.comments[0]["body"]


def test_prices_of_ones_own_are_laid_over_ours(plans: dict[str, str], tmp_path: Path) -> None:
    machine = {"purchase": 280320, "years": 4, "power-kw": 10, "kwh": 0.2, "monthly": 730}
    own = {"as-of": "2026-11-01", "currency": "EUR", "own-machines": {"hgx-h100": machine}}
    table = price_table(own)
    assert table.own("hgx-001", "hgx-h100") == pytest.approx(280320 / 35040 + 2 + 1)
    assert table.own("hgx-001", "other") is None
    assert OwnMachine(purchase=0, years=1).per_hour(730) == 0
    wrong = "as-of: 2026-11-01\nown-machines: {x: {purchase: -1, years: 0}}\n"
    file = tmp_path / "prices.yaml"
    for text, says in (
        ("currency: EUR", "no as-of"),
        (wrong, r"purchase.*\n.*years"),
        ("- x", "is not an object"),
        ("{", "cannot be read as YAML"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=says):
            run([plans["nothing"]], prices=file)
    file.write_text("{")
    with pytest.raises(UsageError, match="cannot be read as JSON"):
        run([plans["nothing"]], policy=file)


@pytest.mark.parametrize("stack", ["dev", "hgx-h100", "rke2-a100"])
def test_a_cluster_is_asked_for_a_live_picture_alone(
    stack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    out = tmp_path / "cluster.svg"
    with pytest.raises(UsageError, match="--live"):
        draw.command(stack, out, kubeconfig=out)


def test_a_live_picture_shows_who_holds_what_and_what_is_not_active() -> None:
    board = (Partition("partition 1", (1, 2, 3, 4)), Partition("partition 2", (5, 6, 7, 8)))
    picture = Picture(
        "caas", (Machine("a", partitions=board), Machine("b")), tenants=(Tenant("acme", 4),)
    )
    live = with_state(picture, {"hosts": {"a": {"active_partitions": [1.0]}}}, {("a", 2): "acme"})
    assert live.machines[0].note == "not active: partition 2"
    assert live.machines[0].holders == {2: "acme"}
    assert live.machines[1].note == "not made yet"
