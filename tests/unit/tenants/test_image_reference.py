"""Which images a tenant may have pulled."""

import re

import pytest

from gpuclusters.container_api import image
from tests.fixtures import image_cases as cases
from tests.fixtures.tables import beside

CASES = beside(__file__, "image_references.yaml")


@pytest.mark.parametrize(("written", "meant"), CASES["meant"].items())
def test_an_image_without_a_registry_is_dockers(written: str, meant: str) -> None:
    assert re.fullmatch(image.REFERENCE, written)
    assert image.full(written) == meant


@pytest.mark.parametrize(
    ("written", "sources", "allowed"),
    [
        *((written, (), True) for written in cases.PUBLIC),
        *((image.full(written), (), False) for written in cases.NOT_PUBLIC),
        *((written, cases.LISTED, True) for written in cases.WITH_LIST),
        *((written, cases.LISTED, False) for written in cases.NOT_WITH_LIST),
    ],
)
def test_public_registries_are_allowed_or_what_is_at_or_below_the_paths_of_a_list(
    written: str, sources: tuple[str, ...], allowed: bool
) -> None:
    assert image.is_allowed(written, sources) is allowed


@pytest.mark.parametrize("written", CASES["no full image"])
@pytest.mark.parametrize("sources", [(), cases.LISTED, ("registry.example.com",)])
def test_what_is_no_full_image_is_never_allowed(written: str, sources: tuple[str, ...]) -> None:
    assert not image.is_allowed(written, sources)


def test_an_example_is_allowed_where_it_is_made_for() -> None:
    for sources in ((), cases.LISTED, cases.LISTED[1:], ("localhost:5000/x",)):
        assert image.is_allowed(image.example(sources), sources)
