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


@pytest.mark.parametrize("written", cases.PUBLIC)
def test_without_a_list_every_public_registry_is_allowed(written: str) -> None:
    assert image.is_allowed(written, ())


@pytest.mark.parametrize("written", cases.NOT_PUBLIC)
def test_without_a_list_no_address_and_no_local_name_is_allowed(written: str) -> None:
    assert not image.is_allowed(image.full(written), ())


@pytest.mark.parametrize("written", cases.WITH_LIST)
def test_a_list_allows_what_is_at_or_below_its_paths(written: str) -> None:
    assert image.is_allowed(written, cases.LISTED)


@pytest.mark.parametrize("written", cases.NOT_WITH_LIST)
def test_a_list_allows_nothing_beside_its_paths(written: str) -> None:
    assert not image.is_allowed(written, cases.LISTED)


@pytest.mark.parametrize("written", CASES["no full image"])
@pytest.mark.parametrize("sources", [(), cases.LISTED, ("registry.example.com",)])
def test_what_is_no_full_image_is_never_allowed(written: str, sources: tuple[str, ...]) -> None:
    assert not image.is_allowed(written, sources)


def test_an_example_is_allowed_where_it_is_made_for() -> None:
    for sources in ((), cases.LISTED, cases.LISTED[1:], ("localhost:5000/x",)):
        assert image.is_allowed(image.example(sources), sources)
