"""Scripts for hosts and pods: real files under `scripts/`, read as text, never built from strings."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


@cache
def read(name: str) -> str:
    """The text of `scripts/<name>`."""
    return (SCRIPTS / name).read_text(encoding="utf-8")


def digest(*names: str) -> str:
    """Over the texts of several: another text is another digest."""
    whole = hashlib.sha256()
    for name in names:
        whole.update(f"{name}\0{read(name)}\0".encode())
    return whole.hexdigest()
