import pytest

from gpuclusters.domain.fabric import TABLES, Baseboard, LayoutError, plan_layout


@pytest.mark.parametrize(
    ("layout", "ids"),
    [
        ([8], [0]),
        ([4, 4], [1, 2]),
        ([2, 2, 2, 2], [3, 4, 5, 6]),
        ([1] * 8, [7, 8, 9, 10, 11, 12, 13, 14]),
        ([4, 2, 1, 1], [1, 5, 12, 14]),
        ([1, 1, 2, 4], [1, 5, 12, 14]),
    ],
)
def test_a_layout_is_cut_the_same_way_every_time(layout: list[int], ids: list[int]) -> None:
    assert [p.id for p in plan_layout(TABLES[Baseboard.HGX_H100], layout)] == ids


@pytest.mark.parametrize("layout", [[], [4], [8, 1], [3, 5], [4, 4, 4]])
def test_a_layout_that_does_not_use_each_gpu_once_is_refused(layout: list[int]) -> None:
    with pytest.raises(LayoutError):
        plan_layout(TABLES[Baseboard.HGX_H100], layout)


def test_blackwell_counts_partitions_from_one_and_pairs_neighbours() -> None:
    chosen = plan_layout(TABLES[Baseboard.HGX_B200], [2, 2, 2, 2])
    assert [(p.id, p.modules) for p in chosen] == [
        (4, (1, 2)),
        (5, (3, 4)),
        (6, (5, 6)),
        (7, (7, 8)),
    ]
