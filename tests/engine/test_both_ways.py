"""A stack goes from Pulumi's own engine to this one and back, and nothing is lost on the way."""

from __future__ import annotations

import copy
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import secrets
from engine.backend import checkpoints
from engine.backend.envelope import Checkpoint
from engine.keeper import Keeper
from engine.usererror import UserError
from tests.engine import recordings
from tests.engine.diskkit import DEV, DiskStack, manager
from tests.engine.enginekit import Thing
from tests.engine.shellkit import Shell, shell
from tests.engine.warmkit import Warm

__all__ = ["shell"]

PULUMI = shutil.which("pulumi")
ENGINE = f"{sys.executable} -m engine"
SCENARIOS = sorted({scenario for scenario, _ in recordings.STEPS})
run = recordings.load("run")
normalise = recordings.load("normalise")


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DiskStack]:
    monkeypatch.setattr(secrets, "ITERATIONS", 1)
    secrets._derive.cache_clear()
    manager.cache_clear()
    yield DiskStack(tmp_path)
    secrets._derive.cache_clear()


# -- recorded states ---------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_recorded_state_comes_out_as_it_went_in(shell: Shell, scenario: str) -> None:
    for of, step in recordings.STEPS:
        if of != scenario:
            continue
        recorded = step["state"]
        for name in {r["urn"].split("::")[0].split(":")[2] for r in _resources(recorded)} or {
            "dev"
        }:
            shell("stack", "init", name)
            file = shell.folder / "state.json"
            file.write_text(json.dumps(recordings.export_of(recorded, {})))
            shell.ok("stack", "import", "--stack", name, "--file", str(file))
            done = shell.ok("stack", "export", "--stack", name, "--show-secrets")
            recorded["deployment"].setdefault("secrets_providers", {"type": "passphrase"})
            assert recordings.normalised(done.json, shell.root) == recorded, step["step"]


def test_a_recorded_state_is_written_back_byte_for_byte(stack: DiskStack) -> None:
    for scenario, step in recordings.STEPS:
        recorded = recordings.export_of(step["state"], {})
        deployment = {**recorded["deployment"], "secrets_providers": manager().state()}
        deployment.setdefault("metadata", {})
        if any(op["type"] != "creating" for op in deployment.get("pending_operations") or ()):
            continue  # the next run drops those, as Pulumi's does
        if any(r.get("external") for r in _resources(recorded)):
            continue  # what is only read is refused
        opened = checkpoints.opened(Checkpoint(3, deployment), manager())
        checkpoint = Checkpoint(3, opened.to_checkpoint(manager().encrypt))
        checkpoints.write(stack.backend.bucket, DEV, checkpoint)
        before = stack.state.read_bytes()
        store = stack.store()
        base = store.load()
        keeper = Keeper(base, store.save)
        for state in base.resources:
            keeper.keep(state, state.copy())
        keeper.flush()
        after = stack.state.read_bytes()
        assert (
            after.partition(b'"secrets_providers"')[2]
            == before.partition(b'"secrets_providers"')[2]
        ), (scenario, step["step"])


def _resources(recorded: dict[str, Any]) -> list[dict[str, Any]]:
    return list(recorded["deployment"].get("resources") or ())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", ["01-component", "02-secrets"])
def test_a_recorded_state_is_taken_over_without_a_change(scenario: str, warm: Warm) -> None:
    folder = recordings.FOLDER / "scenarios" / scenario
    engine = str(warm.engine)
    options = run.Options(engine, engine, frozenset(run.PARTS), False, False, False, None)
    played = run.Scenario(folder)
    playground = run.Playground(folder, options)
    try:
        normaliser = run.Normaliser(str(playground.root))
        for spec, expected in zip(played.spec["steps"], run.recorded(played), strict=True):
            step = run.Step(spec, played.spec, playground, normaliser, options)
            assert step.take()["summary"]["exit"] == 0
            recorded = expected["state"]
            if spec["op"] == "up":
                break
        own = _export(step)
        file = playground.work / "state.json"
        file.write_text(json.dumps(recordings.export_of(recorded, _pickles(own))))
        step._must("stack", "import", "--stack", step.stack, "--file", str(file))
        for command in (
            ("preview", "--expect-no-changes"),
            ("refresh", "--yes", "--skip-preview", "--expect-no-changes"),
            ("preview", "--expect-no-changes"),
            ("up", "--yes", "--skip-preview", "--expect-no-changes"),
        ):
            done = step._engine(*command, *step.args)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
        assert run.Normaliser(str(playground.root)).state(_export(step)) == recorded
    finally:
        playground.close()


def _export(step: Any) -> dict[str, Any]:
    text = step._must("stack", "export", "--show-secrets", "--stack", step.stack).stdout
    return dict(json.loads(text))


def _pickles(value: Any) -> dict[str, str]:
    """The pickled providers in a state, by the names of their classes."""
    found: dict[str, str] = {}
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, str) and key == "plaintext" and item.startswith('"'):
                item = json.loads(item)
            name = normalise.provider_name(item) if isinstance(item, str) else None
            found |= {name: item} if name else _pickles(item)
    elif isinstance(value, list):
        for item in value:
            found |= _pickles(item)
    return found


# -- what is not understood ----------------------------------------------------------------------

ODD = {"future": {"list": [1, None, {"deep": "ü"}]}}


def strange(state: bytes) -> dict[str, Any]:
    """A state with fields that nobody knows, wherever there can be any."""
    document = json.loads(state)
    document["tomorrow"] = ODD
    document["checkpoint"]["beside"] = ODD
    latest = document["checkpoint"]["latest"]
    latest["snippets"] = ODD
    latest["manifest"]["plugins"] = [{"name": "gone", "path": "/p"}]
    latest["manifest"]["builder"] = "another"
    latest["metadata"] = {"integrity_error": ODD}
    latest["secrets_providers"]["since"] = 2030
    latest["secrets_providers"]["state"]["rotation"] = ODD
    for resource in latest.get("resources") or ():
        resource["viewedBy"] = ODD
    lost = copy.deepcopy(latest["resources"][-1])
    lost["urn"] += "-lost"
    latest["pending_operations"] = [{"resource": lost, "type": "creating", "attempt": 3}]
    return dict(document)


def oddities(document: dict[str, Any]) -> dict[str, Any]:
    latest = document["checkpoint"]["latest"]
    return {
        "top": document.get("tomorrow"),
        "checkpoint": document["checkpoint"].get("beside"),
        "deployment": latest.get("snippets"),
        "plugins": latest["manifest"].get("plugins"),
        "manifest": latest["manifest"].get("builder"),
        "metadata": latest.get("metadata"),
        "provider": latest["secrets_providers"].get("since"),
        "provider state": latest["secrets_providers"]["state"].get("rotation"),
        "resources": {
            r["urn"].split("::")[-1].removesuffix("-dev").removesuffix("-prod"): r.get("viewedBy")
            for r in latest["resources"]
        },
        "pending": [
            (op["type"], op.get("attempt"), op["resource"].get("viewedBy"))
            for op in latest["pending_operations"]
        ],
    }


@pytest.fixture
def odd(stack: DiskStack) -> DiskStack:
    assert stack.up(Thing("group", component=True), Thing("a", parent="group"), Thing("b")).ok
    stack.state.write_text(json.dumps(strange(stack.state.read_bytes())))
    return stack


@pytest.mark.parametrize("verb", ["same", "update", "refresh", "add"])
def test_what_is_not_understood_survives_a_run(odd: DiskStack, verb: str) -> None:
    before = oddities(json.loads(odd.state.read_bytes()))
    group = Thing("group", component=True)
    program = [group, Thing("a", parent="group"), Thing("b")]
    if verb == "refresh":
        assert odd.refresh().ok
    elif verb == "update":
        assert odd.up(group, Thing("a", parent="group", text="new"), Thing("b", text="new")).ok
    elif verb == "add":
        assert odd.up(*program, Thing("c")).ok
        before["resources"]["c"] = None
    else:
        assert odd.up(*program).ok
    assert oddities(json.loads(odd.state.read_bytes())) == before


def test_what_is_not_understood_survives_a_kill(odd: DiskStack) -> None:
    before = oddities(json.loads(odd.state.read_bytes()))
    program = [Thing("group", component=True), Thing("a", parent="group"), Thing("b"), Thing("c")]
    assert odd.up(*program).ok
    (cut_off,) = (moment for moment in odd.moments if ("creating", "c") in moment.pending)
    found = oddities(json.loads(cut_off.state))
    assert len(found["pending"]) == 2
    found["pending"].remove(("creating", None, None))
    assert found == before


def test_what_is_not_understood_survives_export_and_import(shell: Shell, odd: DiskStack) -> None:
    document = strange(odd.state.read_bytes())
    shell.ok("stack", "init", "dev")
    file = shell.folder / "state.json"
    export = {"version": 3, "tomorrow": ODD, "deployment": document["checkpoint"]["latest"]}
    export["deployment"]["secrets_providers"] = {
        **shell.ok("stack", "export").json["deployment"]["secrets_providers"],  # type: ignore[index]
        "since": 2030,
    }
    file.write_text(json.dumps(export))
    shell.ok("stack", "import", "--file", str(file), "--force")
    assert shell.ok("stack", "export").json == export


# -- other versions ------------------------------------------------------------------------------


def test_a_state_of_version_4_without_features_is_worked_with(stack: DiskStack) -> None:
    assert stack.up(Thing("a")).ok
    document = json.loads(stack.state.read_bytes())
    document["version"] = 4
    stack.state.write_text(json.dumps(document))
    assert stack.up(Thing("a"), Thing("b")).ok
    assert json.loads(stack.state.read_bytes())["version"] == 4


def test_features_are_refused_by_a_run_and_kept_by_everything_else(
    shell: Shell, stack: DiskStack
) -> None:
    assert stack.up(Thing("a")).ok
    document = json.loads(stack.state.read_bytes())
    document |= {"version": 4, "features": ["views", "refreshBeforeUpdate"]}
    stack.state.write_text(json.dumps(document))
    before = stack.state.read_bytes()
    with pytest.raises(UserError, match="features views, refreshBeforeUpdate"):
        stack.up(Thing("a"))
    assert stack.state.read_bytes() == before
    shell.ok("stack", "init", "dev")
    export = shell.ok("stack", "export").json
    assert isinstance(export, dict)
    export |= {"version": 4, "features": ["views"]}
    file = shell.folder / "state.json"
    file.write_text(json.dumps(export))
    shell.ok("stack", "import", "--file", str(file))
    assert shell.ok("stack", "export").json == export


@pytest.mark.parametrize("version", [0, 1, 2, 5, "3", None, True])
def test_other_versions_are_refused_by_name_and_left_alone(
    stack: DiskStack, version: object
) -> None:
    stack.state.write_text(json.dumps({"version": version, "checkpoint": {"latest": {}}}))
    before = stack.state.read_bytes()
    with pytest.raises(UserError, match=f"version {version!r}.*use the Pulumi CLI"):
        stack.load()
    assert stack.state.read_bytes() == before


# -- the real CLI ----------------------------------------------------------------------------------


@pytest.mark.pulumi_cli
@pytest.mark.timeout(600)
@pytest.mark.skipif(PULUMI is None, reason="the Pulumi CLI is not on PATH")
@pytest.mark.parametrize(("first", "second"), [(ENGINE, PULUMI), (PULUMI, ENGINE)])
@pytest.mark.parametrize("scenario", ["01-component", "02-secrets"])
def test_a_stack_goes_from_one_engine_to_the_other_and_back(
    scenario: str, first: str, second: str
) -> None:
    folder = recordings.FOLDER / "scenarios" / scenario
    options = run.Options(first, first, frozenset(run.PARTS), False, False, False, None)
    played = run.Scenario(folder)
    playground = run.Playground(folder, options)
    try:
        normaliser = run.Normaliser(str(playground.root))
        for spec in played.spec["steps"]:
            step = run.Step(spec, played.spec, playground, normaliser, options)
            made = step.take()
            assert made["summary"]["exit"] == 0
            if spec["op"] == "up":
                break
        for engine in (second, first):
            for command in (
                ("preview", "--expect-no-changes"),
                ("refresh", "--yes", "--skip-preview"),
                ("up", "--yes", "--skip-preview", "--expect-no-changes"),
            ):
                done = playground.call(engine, *command, "--stack", step.stack, *step.args)
                assert done.returncode == 0, (engine, command, done.stdout, done.stderr)
            assert run.Normaliser(str(playground.root)).state(_export(step)) == made["state"]
    finally:
        playground.close()
