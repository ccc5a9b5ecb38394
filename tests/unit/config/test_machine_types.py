"""Machine types of Google Cloud: what is one, and how large it is."""

from __future__ import annotations

import pytest

from gpuclusters.compat import gpu_products
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.gcp import machine_types
from tests.unit.config.documents import google


def test_products_and_zones_of_the_table_are_those_that_a_configuration_takes() -> None:
    assert set(machine_types.products()) <= set(gpu_products.names())
    table = machine_types.table()
    rows = (*table.attachable.values(), *table.built_in.values())
    zones = sorted({zone for row in rows for zone in row.zones})
    assert GcpHosts.model_validate(google(zones=zones)).zones == tuple(zones)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("n1-standard-8", (8, 30)),
        ("n1-highmem-2", (2, 13)),
        ("custom-12-79872", (12, 78)),
        ("n1-custom-1-1024", (1, 1)),
        ("a2-megagpu-16g", (96, 1360)),
        ("e2-standard-4", (4, 16)),
        *dict.fromkeys(
            ["n1-standard-3", "custom-3-4096", "custom-4-4097", "custom-4-1024", "f1-micro"]
        ).items(),
        ("custom-98-98304", None),
    ],
)
def test_the_size_of_what_is_a_machine_type(name: str, expected: tuple[int, float] | None) -> None:
    size = machine_types.machine_type(name)
    assert (size and (size.vcpus, size.memory_gib)) == expected
