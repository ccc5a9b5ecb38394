"""What a user sees ends with an id that `gpu-clusters explain` knows."""

from __future__ import annotations

import json
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuclusters.cli.errors import RunError, UsageError
from gpuclusters.cli.explain import catalogue
from gpuclusters.cli.main import main
from gpuclusters.config.secrets import ConfigError
from gpuclusters.config.stack import parse
from gpuclusters.core.errors import HostKeyMismatchError, code_of, labelled
from gpuclusters.core.finding import refused
from gpuclusters.fabric.answers import FabricError
from gpuclusters.preflight.decide import FleetError
from gpuclusters.providers.properties import StepError, explained
from gpuclusters.review.plan import PlanError
from tests.unit.config.documents import FILE, base, patched

_ID = re.compile(r" \[([a-z0-9.-]+)\]$")


def ids(text: str) -> list[str]:
    """Of every line that has one."""
    return [found.group(1) for line in text.splitlines() if (found := _ID.search(line))]


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"caas": {"nodez": []}}, ["config.unknown-key"]),
        ({"caas": {"name": None}}, ["config.missing-key"]),
        ({"caas": {"name": 7}}, ["config.wrong-type"]),
        ({"caas": {"name": "Not A Label"}}, ["config.refused-value"]),
        ({"caas": {"platform": "abacus"}}, ["config.not-a-choice"]),
        ({"caas": {"partition-layout": [3, 5]}}, ["caas.layout-impossible"]),
        ({"cluster-type": "mainframe"}, ["config.unknown-cluster-type"]),
        ({"caas": {"tenants": {"secure": "v1:abc"}}}, ["config.encrypted-section"]),
    ],
)
def test_faults_of_the_configuration_have_ids(
    patch: dict[str, object], expected: list[str]
) -> None:
    faults = parse(patched(base(), patch))
    assert isinstance(faults, list)
    assert ids(str(ConfigError(FILE, faults))) == expected
    assert set(expected) <= set(catalogue())


def test_a_refusal_says_its_codes_in_every_process() -> None:
    error = refused("hgx-01", "fabric.no-room", "it is Tuesday", "wait")
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert labelled(one) == "hgx-01: it is Tuesday; wait [fabric.no-room]"
        assert ids(str(one))[0] in catalogue()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (HostKeyMismatchError("a", "b", "c", "d"), "remote.host-key-mismatch"),
        (FleetError({"hgx-01": ()}), "preflight.fleet-unfit"),
        (FabricError("hgx-01", "activate partition 3", -8, ""), "fabric.answer-8"),
        (FabricError("hgx-01", "activate partition 3", -99, ""), "fabric.answer-unknown"),
        (UsageError("none", "command.no-stack"), "command.no-stack"),
        (PlanError("none"), "review.plan"),
    ],
)
def test_errors_have_the_id_of_their_class(error: Exception, expected: str) -> None:
    assert code_of(error) == expected
    assert expected in catalogue()


def test_an_error_that_passes_another_one_on_has_its_id_and_foreign_ones_have_none() -> None:
    outer = RunError("hgx-01: …")
    outer.__cause__ = HostKeyMismatchError("a", "b", "c", "d")
    assert outer.error_id == "remote.host-key-mismatch"
    outer.__cause__ = OSError()
    assert outer.error_id == "command.failed"
    narrower = UsageError("none", "command.no-stack")
    narrower.__cause__ = HostKeyMismatchError("a", "b", "c", "d")
    assert narrower.error_id == "command.no-stack"
    assert code_of(OSError()) == ""
    assert labelled(OSError("no")) == "no"


def test_a_failed_step_ends_its_first_line_with_the_id() -> None:
    with pytest.raises(StepError) as caught, explained("create x", ()):
        raise FleetError({"hgx-01": ()})
    assert str(caught.value).splitlines()[0].endswith("[preflight.fleet-unfit]")
    with pytest.raises(StepError) as caught, explained("create x", ()):
        raise ZeroDivisionError
    assert ids(str(caught.value)) == ["step.defect"]
    assert "step.defect" in catalogue()


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Exit code, output and errors of a command."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gpu-clusters", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return (int(ended.value.code or 0), *capsys.readouterr())

    return run


def test_commands_print_the_id_and_one_for_each_fault_of_a_stack_file(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, _, said = run("preview", "--stack", "nowhere")
    assert (code, ids(said)) == (UsageError.exit_code, ["command.no-stack"])
    monkeypatch.chdir(tmp_path)
    code, _, said = run("up")
    assert (code, ids(said)) == (UsageError.exit_code, ["command.no-project"])
    (tmp_path / "Pulumi.yaml").write_text("name: x\n")
    (tmp_path / "gpuclusters").mkdir()
    (tmp_path / "Pulumi.dev.yaml").write_text(
        "config:\n  gpu-clusters:cluster-type: caas\n  gpu-clusters:caas: {nmae: 1}\n"
    )
    for verb in ("up", "preview"):
        code, _, said = run(verb)
        first, *faults = said.splitlines()
        assert (code, ids(first)) == (UsageError.exit_code, ["command.configuration-faults"])
        assert len(faults) > 1
        assert all(ids(fault)[0] in catalogue() for fault in faults)


def test_explain_tells_about_an_id(run: Run) -> None:
    code, out, _ = run("explain", "[remote.unreachable]", "--json")
    told = json.loads(out)
    assert (code, told["code"]) == (0, "remote.unreachable")
    assert told["means"]
    assert told["do"]
    code, _, said = run("explain", "remote.unreachabel")
    assert code == UsageError.exit_code
    assert "did you mean remote.unreachable?" in said
    assert ids(said) == ["command.unknown-code"]
