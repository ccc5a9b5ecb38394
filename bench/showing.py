"""Tables of benches, on the terminal whatever pytest captures."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def show(capsys: pytest.CaptureFixture[str], title: str, rows: Iterable[str]) -> None:
    """Print a table under a title."""
    with capsys.disabled():
        print(f"\n\n{title}")
        for row in rows:
            print(row)
