"""The `import` option.

Reference: pulumi/pulumi, pkg/resource/deploy/step.go: ImportStep.Apply; step_generator.go
(isImport); pulumi.com/docs, "Importing resources": inputs that differ fail the import.
"""

from __future__ import annotations

import dataclasses

import pytest

from tests.engine.enginekit import Stack, Thing, faults
from tests.engine.rules.kit import messages, names, urn


@pytest.fixture
def stack() -> Stack:
    made = Stack()
    made.memory.objects["there"] = {"text": "text", "key": "key"}
    return made


def imported(id_: str = "there", **fields: object) -> Thing:
    options = {"import_id": id_, **fields.pop("options", {})}  # type: ignore[dict-item]
    return Thing("a", options=options, **fields)  # type: ignore[arg-type]


def test_an_object_that_is_described_as_it_is_is_taken_over(stack: Stack) -> None:
    ended = stack.up(imported())
    assert ended.ok, messages(ended)
    assert ended.changes == {"create": 1, "import": 1}
    assert stack.memory.calls == ["read a"]
    state = ended.state("a")
    assert (state.id, state.import_id) == ("there", "there")
    assert state.inputs == {"text": "text", "key": "key"}
    assert state.outputs["size"] == 4


def test_it_is_imported_once(stack: Stack) -> None:
    stack.up(imported())
    stack.memory.calls.clear()
    assert set(stack.up(imported()).changes) == {"same"}
    assert set(stack.up(Thing("a")).changes) == {"same"}
    assert stack.memory.calls == []


def test_inputs_that_differ_fail_and_leave_nothing_behind(stack: Stack) -> None:
    ended = stack.up(imported(text="other", key="third"))
    assert not ended.ok
    text = "inputs to import do not match the existing resource: [text key]"
    assert text in messages(ended)
    assert names(ended) == []
    assert stack.memory.objects["there"] == {"text": "text", "key": "key"}


def test_a_plan_warns_of_inputs_that_differ(stack: Stack) -> None:
    planned = stack.preview(imported(text="other"))
    assert planned.ok
    assert "importing this resource will fail" in messages(planned, "warning")
    assert planned.changes["import"] == 1


def test_inputs_that_are_ignored_may_differ(stack: Stack) -> None:
    ended = stack.up(imported(text="other", options={"ignore_changes": ("text",)}))
    assert ended.ok, messages(ended)
    assert ended.state("a").inputs["text"] == "text"


def test_a_provider_that_leaves_the_comparison_to_the_engine(stack: Stack) -> None:
    stack.memory.silent.add("a")
    assert not stack.up(imported(text="other")).ok
    assert stack.up(imported()).ok


def test_what_is_not_there_cannot_be_imported(stack: Stack) -> None:
    ended = stack.up(imported("nowhere"))
    assert "resource 'nowhere' does not exist" in messages(ended)
    assert names(ended) == []


def test_inputs_that_the_provider_refuses_are_named(stack: Stack) -> None:
    ended = stack.up(imported(text="refused"))
    assert "property text value {refused} has a problem: is refused" in messages(ended)
    assert "one or more inputs failed to validate" in messages(ended)


def test_another_object_takes_the_place_of_the_one_before(stack: Stack) -> None:
    stack.up(Thing("a"))
    stack.memory.calls.clear()
    ended = stack.up(imported())
    assert ended.ok, messages(ended)
    assert ended.steps[-3:] == ["import-replacement a", "replace a", "delete-replaced a"]
    assert list(stack.memory.objects) == ["there"]
    assert not faults(ended.snapshot)


def test_an_object_that_is_not_well_is_imported_and_made_well_by_the_next_run(
    stack: Stack,
) -> None:
    stack.memory.unhealthy.add("read a")
    refused = stack.up(imported())
    # This provider gives no inputs with what is not well, and without them there is no import.
    assert "does not support importing" in messages(refused)


def test_what_was_imported_cannot_be_replaced_while_the_program_names_its_id(stack: Stack) -> None:
    stack.up(imported())
    ended = stack.up(imported(key="new"))
    assert not ended.ok
    assert "may not be replaced; please remove the `import` declaration" in messages(ended)
    planned = stack.preview(imported(key="new"))
    assert planned.ok
    assert "may not be replaced" in messages(planned, "warning")
    assert stack.up(Thing("a", key="new")).ok


def test_an_import_is_a_pending_operation_while_it_runs(stack: Stack) -> None:
    stack.memory.failing.add("read a")
    assert not stack.up(imported()).ok
    assert stack.stored.pending_operations == ()


def test_a_target_that_is_replaced_with_it_may_be_imported_meanwhile(stack: Stack) -> None:
    stack.memory.delete_first.add("first")
    stack.up(Thing("first"), Thing("a", uses=("first",), options={"replace_on_changes": ("of",)}))
    made = dataclasses.replace(imported(), uses=("first",))
    stack.memory.objects["there"]["of"] = ["first@3"]
    ended = stack.up(Thing("first", key="new"), made)
    assert ended.ok, messages(ended)
    assert ended.state("a").id == "there"
    assert urn("a") in {r.urn for r in ended.snapshot.resources}
    assert not faults(ended.snapshot)
