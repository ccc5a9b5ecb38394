"""No lab runs for what is only declared."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPU_CLUSTERS_LAB", str(tmp_path))
