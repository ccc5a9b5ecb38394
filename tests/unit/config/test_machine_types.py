"""Machine types of Google Cloud: what is one, and how large it is."""

from __future__ import annotations

import pytest

from gpuclusters.compat import gpu_products
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.gcp import machine_types
from tests.fixtures.tables import beside
from tests.unit.config.documents import google

CASES = beside(__file__, "machine_types.yaml")


def test_products_and_zones_of_the_table_are_those_that_a_configuration_takes() -> None:
    assert set(machine_types.products()) <= set(gpu_products.names())
    table = machine_types.table()
    rows = (*table.attachable.values(), *table.built_in.values())
    zones = sorted({zone for row in rows for zone in row.zones})
    assert GcpHosts.model_validate(google(zones=zones)).zones == tuple(zones)


@pytest.mark.parametrize(("name", "expected"), CASES)
def test_the_size_of_what_is_a_machine_type(name: str, expected: list[int] | None) -> None:
    size = machine_types.machine_type(name)
    assert (size and [size.vcpus, size.memory_gib]) == expected
