"""What a user sees ends with an id, and `gpu-clusters explain` tells about every one."""

from __future__ import annotations

import importlib
import json
import pickle
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gpuclusters
from gpuclusters.cli.errors import RunError, UsageError
from gpuclusters.cli.explain import catalogue
from gpuclusters.cli.main import app, main
from gpuclusters.config.secrets import ConfigError
from gpuclusters.config.stack import parse
from gpuclusters.core.errors import AdapterError, HostKeyMismatchError, code_of, labelled
from gpuclusters.core.finding import refused
from gpuclusters.fabric.answers import FabricError
from gpuclusters.preflight.decide import FleetError
from gpuclusters.providers.properties import FOR_THE_USER, StepError, explained
from tests.unit.config.documents import FILE, base, patched

_ID = re.compile(r" \[([a-z0-9.-]+)\]$")


def ids(text: str) -> list[str]:
    """Of every line that has one."""
    found = [found.group(1) for line in text.splitlines() if (found := _ID.search(line))]
    assert set(found) <= catalogue().keys()
    return found


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"caas": {"nodez": []}}, "config.unknown-key"),
        ({"caas": {"name": None}}, "config.missing-key"),
        ({"caas": {"name": 7}}, "config.wrong-type"),
        ({"caas": {"name": "Not A Label"}}, "config.refused-value"),
        ({"caas": {"platform": "abacus"}}, "config.not-a-choice"),
        ({"caas": {"partition-layout": [3, 5]}}, "caas.layout-impossible"),
        ({"cluster-type": "mainframe"}, "config.unknown-cluster-type"),
        ({"caas": {"tenants": {"secure": "v1:abc"}}}, "config.encrypted-section"),
    ],
)
def test_faults_of_the_configuration_have_ids(patch: dict[str, object], expected: str) -> None:
    faults = parse(patched(base(), patch))
    assert isinstance(faults, list)
    assert ids(str(ConfigError(FILE, faults))) == [expected]


def test_a_refusal_says_its_codes_in_every_process() -> None:
    error = refused("hgx-01", "fabric.no-room", "it is Tuesday", "wait")
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert labelled(one) == "hgx-01: it is Tuesday; wait [fabric.no-room]"
        assert ids(str(one)) == ["fabric.no-room"]


class NarrowError(AdapterError):
    """Nobody lists it."""


def passing_on(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


OTHER_KEY = HostKeyMismatchError("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FabricError("hgx-01", "activate partition 3", -8, ""), "fabric.answer-8"),
        (FabricError("hgx-01", "activate partition 3", -99, ""), "fabric.answer-unknown"),
        (NarrowError("a", "b", "c", "d"), "remote.failed"),
        (passing_on(RunError("hgx-01: …"), OTHER_KEY), "remote.host-key-mismatch"),
        (passing_on(RunError("hgx-01: …"), OSError()), "command.failed"),
        (passing_on(UsageError("none", "command.no-stack"), OTHER_KEY), "command.no-stack"),
    ],
)
def test_an_error_has_the_id_of_its_class_or_of_what_it_passes_on(
    error: Exception, expected: str
) -> None:
    assert code_of(error) == expected
    assert expected in catalogue()


def test_an_error_of_others_has_no_id() -> None:
    assert code_of(OSError()) == ""
    assert labelled(OSError("no")) == "no"


def test_a_failed_step_ends_its_first_line_with_the_id() -> None:
    for raised, code in (
        (FleetError({"a": ()}), "preflight.fleet-unfit"),
        (Exception(), "step.defect"),
    ):
        with pytest.raises(StepError) as caught, explained("create x", ()):
            raise raised
        assert ids(str(caught.value).splitlines()[0]) == [code]


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Exit code and errors of a command."""

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["gpu-clusters", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return run


def test_commands_print_the_id_and_one_for_each_fault_of_a_stack_file(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, said = run("preview", "--stack", "nowhere")
    assert (code, ids(said)) == (UsageError.exit_code, ["command.no-stack"])
    monkeypatch.chdir(tmp_path)
    code, said = run("up")
    assert (code, ids(said)) == (UsageError.exit_code, ["command.no-project"])
    (tmp_path / "Pulumi.yaml").write_text("name: x\n")
    (tmp_path / "gpuclusters").mkdir()
    (tmp_path / "Pulumi.dev.yaml").write_text(
        "config:\n  gpu-clusters:cluster-type: caas\n  gpu-clusters:caas: {nmae: 1}\n"
    )
    for verb in ("up", "preview"):
        code, said = run(verb)
        first, *faults = said.splitlines()
        assert (code, ids(first)) == (UsageError.exit_code, ["command.configuration-faults"])
        assert len(faults) > 1
        assert all(ids(fault) for fault in faults)


def told(*words: str) -> Any:
    """What `explain` prints, as lines or, if asked for, as JSON."""
    done = CliRunner().invoke(app, ["explain", *words])
    assert done.exit_code == 0
    return json.loads(done.stdout) if "--json" in words else done.stdout.splitlines()


def test_every_code_can_be_explained_and_typed() -> None:
    known = {one["code"]: one for one in told("--json")}
    assert known.keys() == catalogue().keys()
    assert [code for code, one in known.items() if not (one["means"] and one["do"])] == []
    open_places = [code for code, one in known.items() if re.search(r"(?<!\$)\{\w+\}", one["do"])]
    assert open_places == [], "a place that a message fills"
    assert [code for code in known if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", code)] == []


def test_a_name_is_explained_as_the_code_and_the_key_that_it_is() -> None:
    code = told("[remote.unreachable]", "--json")
    assert code["code"] == "remote.unreachable"
    both = told("rke2.version", "--json")
    assert both["means"] == "RKE2 is of another release than declared."
    (place,) = both["places"]
    assert place["paths"] == ["rke2.version"]
    assert (place["values"], place["default"]) == ("text", "required")
    # The key of each variant says which one it is.
    key = told("caas.hosts.machines", "--json")
    assert key["key"] == "caas.hosts.machines"
    assert key["places"][0]["paths"] == ["caas.hosts (source: existing).machines"]
    name, *lines = told("gke.network")
    assert name == "gke.network"
    assert {"  takes:   mapping", "  default: required"} <= {*lines}
    below = r"  cidr: +Range of the nodes\..* \(IPv4 range; required\)"
    assert any(re.fullmatch(below, line) for line in lines)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("remote.unreachabel", "remote.unreachable"), ("rke2.operatr", "rke2.operator")],
)
def test_a_name_that_nothing_has_gets_the_nearest(run: Run, name: str, nearest: str) -> None:
    code, said = run("explain", name)
    assert (code, ids(said)) == (UsageError.exit_code, ["command.unknown-code"])
    assert f"did you mean {nearest}?" in said


def _below(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _below(one)


def test_every_class_whose_text_is_for_users_has_a_code_that_is_listed() -> None:
    for module in pkgutil.walk_packages(gpuclusters.__path__, "gpuclusters."):
        if "scripts" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for kind in (one for family in (*FOR_THE_USER, UsageError, RunError) for one in _below(family)):
        if kind.__module__.startswith("gpuclusters."):
            code = getattr(kind, "code", None) or vars(kind).get("error_id")
            assert code in catalogue() or kind.__name__ in ("FabricError", "Refused"), kind
