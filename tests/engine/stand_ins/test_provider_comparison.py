from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import paths
from engine.stand_ins.calls import Kind
from engine.stand_ins.comparison import compare, without_ignored
from engine.values import UNKNOWN, Secret

STEPS = st.lists(st.text(min_size=1) | st.integers(0, 99), min_size=1, max_size=4).filter(
    lambda steps: isinstance(steps[0], str) and "*" not in steps
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(STEPS)
def test_a_written_path_reads_back(steps) -> None:
    assert list(paths.parse(paths.render(steps))) == steps


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": Kind.UPDATE}),
        ({"a": 1}, {}, {"a": Kind.DELETE}),
        ({}, {"a": 1}, {"a": Kind.ADD}),
        ({"a": None}, {}, {}),
        ({"a": 1}, {"a": True}, {"a": Kind.UPDATE}),
        (
            {"a": {"b": [1, 2]}},
            {"a": {"b": [1, 3, 4]}},
            {"a.b[1]": Kind.UPDATE, "a.b[2]": Kind.ADD},
        ),
        ({"a": [1, 2]}, {"a": [1]}, {"a[1]": Kind.DELETE}),
        ({"a": Secret(1)}, {"a": 1}, {}),
        ({"a": 1}, {"a": UNKNOWN}, {"a": Kind.UPDATE}),
        ({}, {"a": UNKNOWN}, {"a": Kind.ADD}),
        ({"a": {"b": 1}}, {"a": UNKNOWN}, {"a": Kind.UPDATE}),
        ({"a": "1"}, {"a": 1}, {"a": Kind.UPDATE}),
        ({"a": 1}, {"a": 1.0}, {}),
    ],
)
def test_changes_are_found_with_their_kind(old, new, expected) -> None:
    assert {paths.render(path): kind for path, kind in compare(old, new).items()} == expected


@given(st.dictionaries(st.text(max_size=2), VALUES, max_size=3))
def test_nothing_differs_from_itself(value) -> None:
    assert compare(value, value) == {}


@given(VALUES, VALUES)
def test_copying_a_path_makes_the_two_agree_there(one, other) -> None:
    source, target = {"a": one}, {"a": other}
    assert paths.copied(source, target, ("a",)) == source


def test_ignored_paths_and_what_is_in_them_do_not_count() -> None:
    changes = compare({"a": {"b": 1, "c": 1}, "l": [1]}, {"a": {"b": 2, "c": 2}, "l": [2]})
    left = without_ignored(changes, ["a.b", "l[*]"])
    assert list(left) == [("a", "c")]
