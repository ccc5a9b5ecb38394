"""Property paths, ignored changes, the engine's own comparison."""

from __future__ import annotations

import pytest

from engine.diff import (
    Changes,
    Diff,
    IgnoreChangesError,
    apply_replace_on_changes,
    compare_inputs,
    ignore_changes,
    resolve_unknown,
)
from engine.events import PropertyDiff
from engine.paths import PathError, contains, parse, render
from engine.values import UNKNOWN, Secret, Values
from tests.fixtures.tables import beside

ROWS = beside(__file__, "rows.yaml")


@pytest.mark.parametrize(("text", "path"), ROWS["paths"])
def test_paths_are_read_as_pulumi_documents_them(text: str, path: list[str | int]) -> None:
    assert parse(text) == tuple(path)
    assert parse(render(path)) == tuple(path)


@pytest.mark.parametrize("text", ROWS["no paths"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(PathError):
        parse(text)


def test_a_pattern_holds_for_what_is_inside() -> None:
    assert contains(parse("a"), parse("a.b[0]"))
    assert contains(parse("a[*].c"), parse("a[3].c"))
    assert not contains(parse("a[*]"), ("a",))
    assert not contains(parse("a.b"), parse("a"))


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        *ROWS["ignored"],
        ("a", {"a": Secret(1)}, {"a": Secret(2)}, {"a": Secret(1)}),
        ("a.b", {"a": Secret({"b": 1})}, {"a": Secret({"b": 2})}, {"a": Secret({"b": 1})}),
    ],
)
def test_ignored_changes_are_put_back(
    path: str, old: Values, new: Values, expected: Values
) -> None:
    assert ignore_changes(new, old, [path]) == expected


def test_an_ignored_path_whose_way_is_gone_is_refused_by_name() -> None:
    old: Values = {"a": {"b": 1}, "text": "old"}
    with pytest.raises(IgnoreChangesError, match=r'path are missing: "a\.b"'):
        ignore_changes({"text": "new"}, old, ["text", "a.b"])


def test_inputs_are_compared_down_to_single_properties() -> None:
    old: Values = {
        "same": 1,
        "gone": "x",
        "list": [1, 2, 3],
        "map": {"a": 1, "b.c": 2},
        "s": Secret(1),
    }
    new: Values = {"same": 1, "new": "y", "list": [1, 5], "map": {"a": 1, "b.c": 3}, "s": Secret(2)}
    found = compare_inputs(old, new)
    assert found.changed_keys == ("gone", "list", "map", "new", "s")
    assert {p: d.kind for p, d in (found.detailed or {}).items()} == {
        "gone": "delete",
        "new": "add",
        "list[1]": "update",
        "list[2]": "delete",
        'map["b.c"]': "update",
        "s": "update",
    }
    assert all(d.input_diff for d in (found.detailed or {}).values())
    assert compare_inputs({"a": 1}, {"a": UNKNOWN}).changes is Changes.SOME
    assert compare_inputs({"a": 1}, {"a": True}).changes is Changes.SOME
    assert compare_inputs({"a": None}, {}).changes is Changes.NONE


def detail(*paths: str) -> Diff:
    keys = tuple(sorted({str(parse(p)[0]) for p in paths}))
    return Diff(
        Changes.SOME,
        changed_keys=keys,
        detailed={p: PropertyDiff("update", input_diff=True) for p in paths},
    )


def test_a_change_inside_of_a_property_replaces_without_being_a_reason() -> None:
    whole = apply_replace_on_changes(detail("text"), ["text"], init_errors=False)
    assert whole.replace_keys == ("text",)
    diff = apply_replace_on_changes(
        detail("tags.zone", "tags.owner"), ["tags.zone"], init_errors=False
    )
    assert diff.replace
    assert diff.replace_keys == ()
    assert {p: d.kind for p, d in (diff.detailed or {}).items()} == {
        "tags.zone": "update-replace",
        "tags.owner": "update",
    }


@pytest.mark.parametrize(
    ("pattern", "old", "new", "replaces"),
    [*ROWS["replaces"], ("a", {"a": Secret(1)}, {"a": Secret(2)}, True)],
)
def test_changes_that_ask_for_a_new_object(
    pattern: str, old: Values, new: Values, *, replaces: bool
) -> None:
    diff = apply_replace_on_changes(compare_inputs(old, new), [pattern], init_errors=False)
    assert diff.changes is Changes.SOME
    assert diff.replace is replaces


def test_a_difference_without_detail_is_only_known_by_its_names() -> None:
    whole = Diff(Changes.SOME, changed_keys=("a",))
    assert apply_replace_on_changes(whole, ["a"], init_errors=False).replace
    assert not apply_replace_on_changes(whole, ["a.b"], init_errors=False).replace
    assert not apply_replace_on_changes(Diff(Changes.SOME), ["a"], init_errors=False).replace


def test_an_equal_value_that_becomes_secret_is_the_same_to_the_engine() -> None:
    # step_generator.go, diffResource: both sides are compared without the marks of secrets.
    old: Values = {"a": "1", "b": {"c": [Secret(2)]}}
    same: Values = {"a": Secret("1"), "b": Secret({"c": [2]})}
    assert resolve_unknown(Diff(Changes.UNKNOWN), old, same, ()).changes is Changes.NONE
    other = resolve_unknown(Diff(Changes.UNKNOWN), old, {**same, "a": Secret("2")}, ())
    assert (other.changes, other.changed_keys) == (Changes.SOME, ("a",))
