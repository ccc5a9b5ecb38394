"""Shell scripts that run on hosts: real files under `scripts/`, read as text, never built from strings."""

from __future__ import annotations

from functools import cache
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


@cache
def read(name: str) -> str:
    """The text of `scripts/<name>`."""
    return (SCRIPTS / name).read_text(encoding="utf-8")
