"""The programs of a proof, as they lie in scripts/proof."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from gpuclusters.domain.proof_jobs import PROGRAMS

FOLDER = Path(__file__).resolve().parents[2] / "scripts" / "proof"


def texts(names: Iterable[str] = tuple(PROGRAMS.values())) -> Mapping[str, str]:
    """Text by file name."""
    return {name: (FOLDER / name).read_text(encoding="utf-8") for name in names}
