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
)
from engine.events import PropertyDiff
from engine.paths import PathError, contains, parse, render
from engine.values import UNKNOWN, Secret, Values


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("root", ("root",)),
        ("root.nested", ("root", "nested")),
        ('root["nested"]', ("root", "nested")),
        ("root.double.nest", ("root", "double", "nest")),
        ("root.array[0]", ("root", "array", 0)),
        ("root.array[100]", ("root", "array", 100)),
        ("root.array[0].nested", ("root", "array", 0, "nested")),
        ("root.array[0][1].nested", ("root", "array", 0, 1, "nested")),
        ('root["key with \\"escaped\\" quotes"]', ("root", 'key with "escaped" quotes')),
        ('["root key with a ."][100]', ("root key with a .", 100)),
        ("root.array[*].field", ("root", "array", "*", "field")),
        ('spec.hard["requests.nvidia.com/pgpu"]', ("spec", "hard", "requests.nvidia.com/pgpu")),
        ("*", ("*",)),
    ],
)
def test_paths_are_read_as_pulumi_documents_them(text: str, path: tuple[str | int, ...]) -> None:
    assert parse(text) == path


@pytest.mark.parametrize("text", ["", "a[", "a[x]", 'a["b]', "a..b", "."])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(PathError):
        parse(text)


@pytest.mark.parametrize(
    "path", [("a",), ("a", 0, "b"), ("a b", "c.d"), ('q"uote', 3), ("back\\slash",)]
)
def test_a_path_is_printed_so_that_it_can_be_read_again(path: tuple[str | int, ...]) -> None:
    assert parse(render(path)) == path


def test_a_pattern_holds_for_what_is_inside() -> None:
    assert contains(parse("a"), parse("a.b[0]"))
    assert contains(parse("a[*].c"), parse("a[3].c"))
    assert not contains(parse("a[*]"), ("a",))
    assert not contains(parse("a.b"), parse("a"))


OLD: Values = {
    "tags": {"owner": "old", "zone": "a"},
    "list": [{"x": 1}, {"x": 2}],
    "text": "old",
    "sealed": Secret({"in": "old"}),
}


@pytest.mark.parametrize(
    ("paths", "new", "expected"),
    [
        (["text"], {"text": "new"}, {"text": "old"}),
        (["text"], {}, {"text": "old"}),
        (["added"], {"added": 1, "text": "t"}, {"text": "t"}),
        (
            ["tags.owner"],
            {"tags": {"owner": "new", "zone": "b"}},
            {"tags": {"owner": "old", "zone": "b"}},
        ),
        (["tags.more"], {"tags": {"more": "new"}}, {"tags": {}}),
        (
            ["tags.*"],
            {"tags": {"owner": "new", "extra": 1}},
            {"tags": {"owner": "old", "zone": "a"}},
        ),
        (["list[1].x"], {"list": [{"x": 8}, {"x": 9}]}, {"list": [{"x": 8}, {"x": 2}]}),
        (["list[*].x"], {"list": [{"x": 8}, {"x": 9}]}, {"list": [{"x": 1}, {"x": 2}]}),
        (["sealed.in"], {"sealed": Secret({"in": "new"})}, {"sealed": Secret({"in": "old"})}),
        (["nowhere.at.all"], {"text": "new"}, {"text": "new"}),
    ],
)
def test_ignored_changes_are_put_back(paths: list[str], new: Values, expected: Values) -> None:
    assert ignore_changes(new, OLD, paths) == expected


def test_an_ignored_path_whose_way_is_gone_is_refused_by_name() -> None:
    with pytest.raises(IgnoreChangesError, match=r"tags\.owner"):
        ignore_changes({"text": "new"}, OLD, ["text", "tags.owner"])


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


def test_what_is_unknown_differs_from_what_is_known() -> None:
    assert compare_inputs({"a": 1}, {"a": UNKNOWN}).changes is Changes.SOME


def test_true_is_not_one() -> None:
    assert compare_inputs({"a": 1}, {"a": True}).changes is Changes.SOME


def test_nothing_and_null_are_the_same() -> None:
    assert compare_inputs({"a": None}, {}).changes is Changes.NONE


def detail(*paths: str) -> Diff:
    keys = tuple(sorted({str(parse(p)[0]) for p in paths}))
    return Diff(
        Changes.SOME,
        changed_keys=keys,
        detailed={p: PropertyDiff("update", input_diff=True) for p in paths},
    )


def test_a_change_becomes_a_replacement_where_the_program_wants_it() -> None:
    diff = apply_replace_on_changes(detail("text"), ["text"], init_errors=False)
    assert diff.replace
    assert diff.replace_keys == ("text",)


def test_a_change_inside_of_a_property_replaces_without_being_a_reason() -> None:
    diff = apply_replace_on_changes(
        detail("tags.zone", "tags.owner"), ["tags.zone"], init_errors=False
    )
    assert diff.replace
    assert diff.replace_keys == ()
    assert {p: d.kind for p, d in (diff.detailed or {}).items()} == {
        "tags.zone": "update-replace",
        "tags.owner": "update",
    }


def test_a_difference_without_detail_stays_an_update() -> None:
    diff = apply_replace_on_changes(Diff(Changes.SOME), ["text"], init_errors=False)
    assert not diff.replace


def test_an_init_error_can_ask_for_a_new_object() -> None:
    diff = apply_replace_on_changes(Diff(Changes.NONE), ["#initerror"], init_errors=True)
    assert diff.replace
