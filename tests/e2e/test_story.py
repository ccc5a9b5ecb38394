"""The story of two customers on one machine (story.py), on real nodes: from `make up` to `make down`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.nodes.network import token
from tests.e2e.conftest import Checkout, checkout
from tests.e2e.story import (
    Tenants,
    computes_in_containers,
    every_output_says_once_what_stands_for_kata,
    two_tenants_on_one_machine_and_a_gpu_that_was_tampered_with,
)
from tests.lab.nodes import this_machine
from tests.lab.nodes.real_lab import BUILD_SECONDS, only_where_possible

pytestmark = [
    pytest.mark.lab,
    pytest.mark.real_node,
    only_where_possible,
    pytest.mark.timeout(BUILD_SECONDS),
]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The dev stack on real nodes, up; this machine is left as it was found."""
    folder = tmp_path_factory.mktemp("story-real")
    nodes = folder / "lab" / "nodes"
    before = this_machine.seen()
    with checkout(folder, nodes="real") as dev:
        dev.up()
        yield dev
    # `make down` has run.
    after = this_machine.seen(nodes)
    assert this_machine.of(after, token(nodes)) == []
    assert this_machine.changed(before, after, nodes) == {}


def test_every_output_says_that_runc_stands_for_kata(real: Checkout, tmp_path: Path) -> None:
    every_output_says_once_what_stands_for_kata(Tenants.of(real), tmp_path)


def test_gpus_compute_in_real_containers_that_a_tenant_asks_for(
    real: Checkout, tmp_path: Path
) -> None:
    computes_in_containers(Tenants.of(real), tmp_path, sizes=(1, 2, 4))


def test_the_story_of_two_tenants(real: Checkout, tmp_path: Path) -> None:
    two_tenants_on_one_machine_and_a_gpu_that_was_tampered_with(Tenants.of(real), tmp_path)
