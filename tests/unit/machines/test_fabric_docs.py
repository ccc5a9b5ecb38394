"""The page about the fabric says what the data says."""

from pathlib import Path

from gpuclusters.fabric.table import BOARDS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "fabric.md").read_text()


def test_every_board_is_on_the_page_with_its_date_and_numbers() -> None:
    for board, facts in BOARDS.items():
        (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {board} |")]
        assert f"| {facts.as_of} |" in row
        assert f"| {facts.links_per_gpu} |" in row
        if facts.table is not None:
            ids = [p.id for p in facts.table.partitions]
            assert f"| {min(ids)} to {max(ids)} |" in row
