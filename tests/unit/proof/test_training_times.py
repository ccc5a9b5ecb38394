"""How long a training takes: from a table, from evidence, as a table of one's own, and as a plot."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer

from gpuclusters.cli import verify
from gpuclusters.cli.errors import RunError, UsageError
from gpuclusters.cli.training_times import command
from gpuclusters.proof import checks as proof
from gpuclusters.proof import training_times
from gpuclusters.proof.checks import Check, CheckLevel
from gpuclusters.proof.evidence import faults, headline
from tests.unit.proof.proof_world import climbed

SVG = "{http://www.w3.org/2000/svg}"


def test_evidence_of_a_ladder_needs_every_rung_up_to_its_level() -> None:
    whole = climbed()
    document = json.loads(json.dumps(whole.document()))
    assert faults(document) == []
    assert headline(document).endswith("up to R9: 9 checks, all passed")
    assert document["rungs"]["R7"]["shows"] == "the node offers its GPUs"
    assert "## R1: the driver shows the GPUs of the host (nvidia-smi -L on the host)" in (
        whole.markdown()
    )
    for missing in ("R1", "R9"):
        part = replace(whole, checks=[one for one in whole.checks if one.level != missing])
        assert faults(part.document()) == [f"does not show R9: no check of {missing} is in it"]
    failed = proof.USERNETES.failed(CheckLevel.NODES, "a", "gone")
    bad = replace(whole, level="R5", checks=[failed])
    assert faults(bad.document()) == [
        "does not show that the ladder holds: 1 of 1 checks not passed"
    ]
    assert not bad.holds


def test_the_expected_time_follows_what_was_measured_and_patience_grows() -> None:
    for nodes, epochs, seconds in (
        (2, 4, 120),
        (3, 4, 147.5),
        (4, 4, 175),
        (32, 4, 385),
        (48, 4, 490),
        (2, 8, 240),
        (1, 4, 92.5),
    ):
        assert training_times.expected_seconds(nodes, epochs) == pytest.approx(seconds)
        assert training_times.patience_seconds(nodes, epochs) > 900 + 3 * seconds
    patience = [training_times.patience_seconds(n, 4) for n in range(1, 65)]
    assert patience == sorted(patience)


def test_a_run_is_read_from_its_evidence_and_a_climb_without_one_has_none() -> None:
    run = training_times.run_of(climbed(nodes=4).document(), "a.json")
    assert run is not None
    assert (run.nodes, run.seconds, run.accuracy, run.epochs) == (4, 131.0, 0.8065, 4)
    assert (run.simulated, run.source, run.cluster) == (False, "a.json", "v100")
    short: list[Check] = list(climbed().checks)[:-1]
    assert training_times.run_of({"checks": [check.document() for check in short]}) is None


def run(*paths: Path, **options: Any) -> int:
    with pytest.raises(typer.Exit) as ended:
        command(list(paths), **options)
    return ended.value.exit_code


def test_the_command_reads_folders_and_files_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path) == 1
    assert "no evidence of a training was found" in capsys.readouterr().out
    folder = tmp_path / "evidence"
    verify.keep(climbed(), folder)
    later = {"at": "2026-11-22T06:00:00Z"}
    verify.keep(climbed(nodes=3, seconds=4, simulated=1, about=later), folder)
    (folder / "other.json").write_text("{}")
    picture = tmp_path / "out" / "times.svg"
    assert run(folder, svg=picture, as_json=True) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [run["nodes"] for run in told["runs"]] == [2, 3]
    assert told["measured-by-others"]["measured"][0] == {"nodes": 2, "usernetes": 120, "gke": 33}
    root = ElementTree.fromstring(picture.read_text())
    texts = ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]
    assert {"your runs", "simulated, no GPU", "2m11", "4.0s"} <= set(texts)
    assert len(list(root.iter(f"{SVG}polyline"))) == 4
    assert run(folder) == 0
    shown = capsys.readouterr().out
    assert "2m11" in shown
    assert "measured by others" in shown


@pytest.mark.parametrize(
    ("text", "said"), [("{", "cannot be read as JSON"), ("{}", "is no evidence"), (None, "cannot")]
)
def test_a_file_that_was_named_must_be_evidence(
    tmp_path: Path, text: str | None, said: str
) -> None:
    file = tmp_path / "e.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=said):
        run(file)


def test_an_altered_file_of_a_folder_is_refused(tmp_path: Path) -> None:
    path = verify.keep(climbed(), tmp_path)
    path.write_text(path.read_text().replace("131.0", "31.0"))
    with pytest.raises(UsageError, match="was altered"):
        run(tmp_path)
    (tmp_path / "blocked").write_text("")
    (tmp_path / "none").mkdir()
    with pytest.raises(RunError):
        run(tmp_path / "none", svg=tmp_path / "blocked" / "x.svg")
