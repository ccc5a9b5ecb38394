"""A stack goes from Pulumi's own engine to this one and back, and nothing is lost on the way."""

from __future__ import annotations

import copy
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.backend import checkpoints
from engine.backend.envelope import Checkpoint
from engine.keeper import Keeper
from engine.usererror import UserError
from tests.engine import recordings
from tests.engine.diskkit import DEV, DiskStack, manager, stack
from tests.engine.enginekit import Thing
from tests.engine.reference import run
from tests.engine.reference.normalise import Normaliser, provider_name
from tests.engine.reference.run import Playground
from tests.engine.shellkit import Shell, shell

__all__ = ["shell", "stack"]

PULUMI = shutil.which("pulumi")
ENGINE = f"{sys.executable} -m engine"


def test_a_recorded_state_is_written_back_byte_for_byte(stack: DiskStack) -> None:
    for scenario, step in recordings.STEPS:
        recorded = recordings.export_of(step["state"], {})
        deployment = {**recorded["deployment"], "secrets_providers": manager().state()}
        deployment.setdefault("metadata", {})
        if any(op["type"] != "creating" for op in deployment.get("pending_operations") or ()):
            continue  # the next run drops those, as Pulumi's does
        if any(r.get("external") for r in deployment.get("resources") or ()):
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


@pytest.fixture
def first_up(tmp_path: Path) -> Callable[[str, str], tuple[Playground, dict[str, Any]]]:
    """A scenario after its first `up`, and the state that this made."""

    def up(scenario: str, engine: str | Path) -> tuple[Playground, dict[str, Any]]:
        folder = tmp_path / "played"
        folder.mkdir()
        played = Playground(scenario, engine, folder)
        number = [step.op for step in run.steps(scenario)].index("up") + 1
        seen = [played.take(step) for step in run.steps(scenario)[:number]]
        assert [made["summary"]["exit"] for made in seen] == [0] * number
        return played, seen[-1]["state"]

    return up


def changes_nothing(played: Playground, engine: str | Path, wanted: dict[str, Any]) -> None:
    """Whatever `engine` does with the stack, the state is still `wanted`."""
    for command in (
        ("preview", "--expect-no-changes"),
        ("refresh", "--yes", "--skip-preview", "--expect-no-changes"),
        ("up", "--yes", "--skip-preview", "--expect-no-changes"),
    ):
        done = played.call(*command, "--stack", "dev", engine=engine)
        assert done.returncode == 0, (engine, command, done.stdout, done.stderr)
    assert Normaliser(str(played.root)).state(played.export("dev")) == wanted


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", ["01-component", "02-secrets"])
def test_a_recorded_state_is_taken_over_without_a_change(
    first_up, scenario: str, warm: Path
) -> None:
    played, _ = first_up(scenario, warm)
    recorded = next(s for s in run.recorded(scenario) if s["summary"]["op"] == "up")["state"]
    file = played.work / "state.json"
    file.write_text(json.dumps(recordings.export_of(recorded, _pickles(played.export("dev")))))
    played.must("stack", "import", "--stack", "dev", "--file", str(file))
    changes_nothing(played, warm, recorded)


def _pickles(value: Any) -> dict[str, str]:
    """The pickled providers in a state, by the names of their classes."""
    found: dict[str, str] = {}
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, str):
            text = json.loads(item) if item.startswith('"') else item
            name = provider_name(text)
            found |= {name: text} if name else {}
        elif isinstance(item, (dict, list)):
            found |= _pickles(item)
    return found


GROUP = Thing("group", component=True)
PROGRAM = [GROUP, Thing("a", parent="group"), Thing("b")]
CHANGED = [GROUP, Thing("a", parent="group", text="new"), Thing("b", text="new")]
ODD = {"future": {"list": [1, None, {"deep": "ü"}]}}


def strange(state: bytes) -> dict[str, Any]:
    """A state with fields that nobody knows, wherever there can be any."""
    document = json.loads(state)
    latest = document["checkpoint"]["latest"]
    for place in (
        *(document, document["checkpoint"], latest, latest["manifest"], latest["metadata"]),
        *(latest["secrets_providers"], latest["secrets_providers"]["state"], *latest["resources"]),
    ):
        place["tomorrow"] = ODD
    latest["manifest"]["plugins"] = [{"name": "gone", "path": "/p"}]
    lost = copy.deepcopy(latest["resources"][-1])
    lost["urn"] += "-lost"
    latest["pending_operations"] = [{"resource": lost, "type": "creating", "tomorrow": ODD}]
    return dict(document)


def oddities(value: Any, place: str = "") -> set[str]:
    """Where in a state there is what nobody knows; resources are called by their names."""
    if value == ODD or "plugins" in place:
        return {place}
    if isinstance(value, list):
        value = {_name(item, number): item for number, item in enumerate(value)}
    if not isinstance(value, dict):
        return set()
    return {found for key, item in value.items() for found in oddities(item, f"{place} {key}")}


def _name(item: Any, number: int) -> str:
    of = item.get("resource", item) if isinstance(item, dict) else {}
    return str(of.get("urn", number))


@pytest.fixture
def odd(stack: DiskStack) -> DiskStack:
    assert stack.up(*PROGRAM).ok
    stack.state.write_text(json.dumps(strange(stack.state.read_bytes())))
    return stack


@pytest.mark.parametrize("program", [PROGRAM, CHANGED, None], ids=["same", "update", "refresh"])
def test_what_is_not_understood_survives_a_run_and_a_kill(
    odd: DiskStack, program: list[Thing] | None
) -> None:
    before = oddities(json.loads(odd.state.read_bytes()))
    assert len(before) > 12
    odd.moments.clear()
    assert (odd.refresh() if program is None else odd.up(*program)).ok
    assert odd.moments
    for moment in odd.moments:  # what is under way is there twice
        assert before <= oddities(json.loads(moment.state))
    assert oddities(json.loads(odd.state.read_bytes())) == before


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


def test_features_are_refused_by_a_run_and_kept_by_everything_else(
    shell: Shell, stack: DiskStack
) -> None:
    assert stack.up(Thing("a")).ok
    document = json.loads(stack.state.read_bytes())
    stack.state.write_text(json.dumps({**document, "version": 4}))
    assert stack.up(Thing("a"), Thing("b")).ok
    assert json.loads(stack.state.read_bytes())["version"] == 4
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


@pytest.mark.pulumi_cli
@pytest.mark.timeout(600)
@pytest.mark.skipif(PULUMI is None, reason="the Pulumi CLI is not on PATH")
@pytest.mark.parametrize(("first", "second"), [(ENGINE, PULUMI), (PULUMI, ENGINE)])
@pytest.mark.parametrize("scenario", ["01-component", "02-secrets"])
def test_a_stack_goes_from_one_engine_to_the_other_and_back(
    first_up, scenario: str, first: str, second: str
) -> None:
    played, made = first_up(scenario, first)
    for engine in (second, first):
        changes_nothing(played, engine, made)
