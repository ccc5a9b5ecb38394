"""The story of two customers on one machine (story.py), on real nodes: from `make up` to `make down`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.nodes.network import token
from tests.e2e.conftest import Checkout, checkout
from tests.e2e.story import (
    Tenants,
    computed_in_containers,
    every_output_says_once_what_stands_for_kata,
    two_tenants_on_one_machine_and_a_gpu_that_was_tampered_with,
)
from tests.lab.nodes import this_machine
from tests.lab.nodes.real_lab import REAL_NODE

pytestmark = REAL_NODE


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


def test_the_story_of_two_tenants_whose_containers_compute(real: Checkout, tmp_path: Path) -> None:
    tenants = Tenants.of(real)
    every_output_says_once_what_stands_for_kata(tenants)
    done = real.run("verify", "--level", "proof", "--evidence", str(tmp_path / "proof"))
    assert done.returncode == 0, done.stdout + done.stderr
    computed_in_containers(tenants, tmp_path / "proof", sizes=(1, 2, 4))
    two_tenants_on_one_machine_and_a_gpu_that_was_tampered_with(tenants, tmp_path / "isolation")
