"""Presets of machines, tables of their boards, and the cut of a board into sizes with the fewest switches."""

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuclusters.compat.platforms import PRESETS, Platform, SwitchAccess
from gpuclusters.core.naming import is_pci_address
from gpuclusters.fabric.table import (
    BOARDS,
    TABLES,
    Baseboard,
    LayoutError,
    PartitionTable,
    plan_layout,
    table_of,
)
from tests.fixtures.tables import beside

CASES = beside(__file__, "fabric_layouts.yaml")


@pytest.mark.parametrize(("layout", "ids"), CASES["cut"])
def test_a_layout_is_cut_the_same_way_every_time(layout: list[int], ids: list[int]) -> None:
    assert [p.id for p in plan_layout(TABLES[Baseboard.HGX_H100], layout)] == ids


@pytest.mark.parametrize("layout", CASES["refused"])
def test_a_layout_that_does_not_use_each_gpu_once_is_refused(layout: list[int]) -> None:
    with pytest.raises(LayoutError):
        plan_layout(TABLES[Baseboard.HGX_H100], layout)


def cuts(table: PartitionTable, layout: Sequence[int]) -> list[frozenset[int]]:
    """Every set of partitions that uses each GPU once, tried one after another."""
    found = []
    for chosen in itertools.combinations(table.partitions, len(layout)):
        modules = [m for p in chosen for m in p.modules]
        sizes = sorted(p.size for p in chosen)
        if sizes == sorted(layout) and sorted(modules) == list(table.modules):
            found.append(frozenset(p.id for p in chosen))
    return found


@st.composite
def boards(draw: st.DrawFn) -> PartitionTable:
    """A known table, or a small one with any partitions."""
    if draw(st.booleans()):
        return draw(st.sampled_from(list(TABLES.values())))
    groups = draw(
        st.sets(st.frozensets(st.integers(1, 5), min_size=1, max_size=3), min_size=1, max_size=12)
    )
    return table_of(Baseboard.HGX_A100, dict(enumerate(sorted(map(sorted, groups)))))


LAYOUTS = [[8], [4, 4], [4, 2, 2], [4, 2, 1, 1], [2, 2, 2, 2], [2, 2, 2, 1, 1], [4, 1, 1, 1, 1]]


@settings(deadline=None, max_examples=80)
@given(boards(), st.data())
def test_no_other_cut_needs_fewer_switches_and_what_is_used_stays(
    table: PartitionTable, data: st.DataObject
) -> None:
    numbers = [p.id for p in table.partitions]
    if len(table.modules) == 8:
        layout = data.draw(st.sampled_from(LAYOUTS))
    else:
        layout = [
            p.size for p in data.draw(st.lists(st.sampled_from(table.partitions), max_size=5))
        ]
    active: set[int] = set()
    for number in data.draw(st.permutations(numbers)):
        taken = {m for i in active for m in table.partition(i).modules}
        if taken.isdisjoint(table.partition(number).modules) and data.draw(st.booleans()):
            active.add(number)
    in_use = {i for i in sorted(active) if data.draw(st.integers(0, 3)) == 0}

    possible = [cut for cut in cuts(table, layout) if in_use <= cut]
    if not possible:
        with pytest.raises(LayoutError):
            plan_layout(table, layout, active=active, in_use=in_use)
        return
    cut = plan_layout(table, layout, active=active, in_use=in_use)
    chosen = {p.id for p in cut}
    assert chosen in possible
    assert len(active ^ chosen) == min(len(active ^ other) for other in possible)
    # The same question has the same answer, in whatever order the sizes are written.
    again = plan_layout(table, sorted(layout), active=sorted(active), in_use=in_use)
    assert again == cut


def test_a_full_table_of_the_api_is_cut_at_once() -> None:
    pairs = [(a, b) for a in range(1, 17) for b in range(a + 1, 17)][:48]
    groups = [*((m,) for m in range(1, 17)), *pairs]
    table = table_of(Baseboard.HGX_A100, dict(enumerate(groups)))
    started = time.process_time()
    plan_layout(table, [2, 2, 2, 2, *[1] * 8], active=range(16))
    assert time.process_time() - started < 5


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_a_known_table_has_the_shape_of_its_board(table: PartitionTable) -> None:
    sizes = [p.size for p in table.partitions]
    assert [sizes.count(n) for n in (8, 4, 2, 1)] == [1, 2, 4, 8]
    first = 1 if table.baseboard is Baseboard.HGX_B200 else 0
    assert [p.id for p in table.partitions] == list(range(first, first + 15))


@pytest.mark.parametrize("board", BOARDS)
def test_every_board_is_on_the_page_with_its_numbers(board: Baseboard) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/fabric.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith(f"| {board} |")]
    partitions = BOARDS[board].partitions
    if partitions:
        pairs = [f"{p[0]}, {p[1]}" for p in partitions.values() if len(p) == 2]
        assert f"| {min(partitions)} to {max(partitions)} |" in row
        assert f"| {'; '.join(pairs)} |" in row
    else:
        assert "| in no source |" in row


@pytest.mark.parametrize("platform", Platform)
def test_a_preset_knows_all_addresses_or_none(platform: Platform) -> None:
    preset = PRESETS[platform]
    assert preset.baseboard in BOARDS
    assert (preset.switch_pci_id is None) is (preset.switch_access is SwitchAccess.CONNECTX_BRIDGE)
    assert len(preset.gpus) in (0, 8)
    assert len(preset.switches) == (preset.fabric_functions if preset.gpus else 0)
    addresses = [*preset.gpus.values(), *preset.switches, *preset.extra_functions]
    assert all(is_pci_address(address) for address in addresses)
    assert len(set(addresses)) == len(addresses)


def test_modules_of_an_hgx_h100_are_not_in_the_order_of_the_bus() -> None:
    # WP-12736-002: module n is entry index[n] of lspci.
    gpus = PRESETS[Platform.SUPERMICRO_HGX_H100].gpus
    by_bus = sorted(gpus.values())
    assert [by_bus.index(gpus[module]) for module in range(1, 9)] == [4, 6, 5, 7, 0, 2, 1, 3]


def test_a_pci_address_is_written_as_sysfs_writes_it() -> None:
    right = ["0000:0f:00.0", "0000:0f:1f.7"]
    wrong = ["0F:00.0", "0f:00.0", "0000:0f:20.0", "0000:0f:00.8", "0000:0f:00.0\n"]
    assert [text for text in (*right, *wrong) if is_pci_address(text)] == right
