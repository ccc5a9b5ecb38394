"""A board whose partition table nobody knows, with the machine's own table in the configuration."""

from __future__ import annotations

from gpuclusters.config.plan import plan, table
from gpuclusters.fabric.table import BOARDS, MapSource
from tests.unit.config.documents import accepted, base, patched

# The shape is known of every board; these numbers are made up, as any are that nobody has read.
TABLE = [
    {"id": 20, "gpus": [1, 2, 3, 4, 5, 6, 7, 8]},
    {"id": 21, "gpus": [1, 2, 3, 4]},
    {"id": 22, "gpus": [5, 6, 7, 8]},
]


def test_a_table_that_is_given_is_planned_with_and_modules_are_believed() -> None:
    node = {
        "name": "dgx-01",
        "gpus": {str(n): f"0000:{n:02x}:00.0" for n in range(1, 9)},
        "switches": [f"0000:c{n}:00.0" for n in range(6)],
    }
    document = patched(
        base(),
        {
            "caas": {
                "platform": "hgx-a100",
                "partition-table": TABLE,
                "partition-layout": [4, 4],
                "nodes": [node],
                "tenants": [],
            }
        },
    )
    config = accepted(document).section
    assert config is not None
    assert table(config).sizes == (4, 8)
    assert [p.id for p in plan(config).nodes[0].partitions] == [21, 22]
    assert BOARDS[plan(config).preset.baseboard].module_map is MapSource.STATED
