"""The page about the fabric says what the data says."""

from pathlib import Path

from gpuclusters.fabric.table import BOARDS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "fabric.md").read_text()


def test_every_board_is_on_the_page_with_its_numbers() -> None:
    for board, facts in BOARDS.items():
        (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {board} |")]
        if facts.partitions:
            assert f"| {min(facts.partitions)} to {max(facts.partitions)} |" in row
            pairs = [p for p in facts.partitions.values() if len(p) == 2]
            assert f"| {'; '.join(f'{one}, {other}' for one, other in pairs)} |" in row
        else:
            assert "| in no source |" in row
