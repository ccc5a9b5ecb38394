"""URNs, aliases, durations, version ranges, targets, graphs, Go's way to print values."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from engine import urn
from engine.goal import GoalError, parse_duration
from engine.graph import layers, needs
from engine.planner import in_go
from engine.project import satisfies
from engine.providers import default_name
from engine.request import Request
from engine.state import ResourceState
from engine.targets import Targets
from engine.values import Secret
from tests.engine.enginekit import PROJECT
from tests.fixtures.tables import beside

ROWS = beside(__file__, "rows.yaml")
STACK = "urn:pulumi:dev::memory::pulumi:pulumi:Stack::memory-dev"


def request(**fields: object) -> Request:
    return Request(PROJECT, "dev", "up", preview=False, **fields)  # type: ignore[arg-type]


def test_a_urn_holds_the_types_of_the_parents_but_not_the_stacks() -> None:
    parent = urn.make("dev", "memory", STACK, "a:b:Group", "g")
    child = urn.make("dev", "memory", parent, "a:b:Thing", "has::colons")
    assert parent == "urn:pulumi:dev::memory::a:b:Group::g"
    assert child == "urn:pulumi:dev::memory::a:b:Group$a:b:Thing::has::colons"
    assert urn.type_of(child) == "a:b:Thing"
    assert urn.name_of(child) == "has::colons"
    assert urn.is_default_provider("urn:pulumi:d::p::pulumi:providers:k8s::default_1_2_3")
    assert not urn.is_default_provider("urn:pulumi:d::p::pulumi:providers:k8s::mine")
    assert not urn.is_default_provider("urn:pulumi:d::p::a:b:C::default")
    assert default_name("1.2.3-beta+5", "") == "default_1_2_3-beta_5"


@pytest.mark.parametrize(("text", "seconds"), ROWS["durations"])
def test_durations_are_gos(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ROWS["no durations"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(GoalError, match="is no duration"):
        parse_duration(text)


@pytest.mark.parametrize(("wanted", "good"), ROWS["versions"])
def test_version_ranges(wanted: str, *, good: bool) -> None:
    assert satisfies("v3.272.0", wanted) is good


def state(name: str, *dependencies: str, **fields: object) -> ResourceState:
    return ResourceState(name, "a:b:C", custom=True, dependencies=dependencies, **fields)  # type: ignore[arg-type]


def test_targets_are_urns_with_wildcards() -> None:
    base = "urn:pulumi:dev::memory::a:b:Thing::"
    targets = Targets(request(targets=(base + "one", "urn:pulumi:dev::memory::a:b:Other::*")))
    assert targets.includes(state(base + "one"))
    assert not targets.includes(state(base + "one-more"))
    assert targets.includes(state("urn:pulumi:dev::memory::a:b:Other::any"))
    assert not targets.includes(state("urn:pulumi:dev::memory::a:b:Other::any::more"))
    assert targets.includes(state(STACK))
    assert Targets(request(targets=("**::one",))).includes(state(base + "one"))
    assert not Targets(request(excludes=(base + "one",))).includes(state(base + "one"))


@st.composite
def states(draw: st.DrawFn) -> list[ResourceState]:
    made: list[ResourceState] = []
    for i in range(draw(st.integers(0, 12))):
        before = [s.urn for s in made]
        some = st.lists(st.sampled_from(before), max_size=3) if before else st.just([])
        made.append(state(str(i), *draw(some)))
    return made


@given(states())
def test_nobody_is_deleted_with_or_before_those_that_need_it(made: list[ResourceState]) -> None:
    groups = layers(made)
    level = {s.urn: i for i, group in enumerate(groups) for s in group}
    assert sorted(level) == sorted(s.urn for s in made)
    for s in made:
        assert all(level[s.urn] < level[n] for n in needs(s))


def test_a_circle_through_replaced_ones_is_no_trouble() -> None:
    old_a, new_b = state("a", "b", delete=True), state("b", "a")
    assert sum(map(len, layers([old_a, new_b]))) == 2


def test_values_are_shown_as_go_shows_them_but_never_secrets() -> None:
    assert in_go({"": "empty key", "ok": "fine"}) == "{map[:{empty key} ok:{fine}]}"
    assert in_go(["a", True, None]) == "{[{a} {true} {<nil>}]}"
    assert in_go(Secret("hidden")) == "{[secret]}"
    assert "hidden" not in in_go({"a": Secret("hidden")})
