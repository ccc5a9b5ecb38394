"""Tables and JSON on stdout, and files that the user asked for."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.engine.atomicfile import write_bytes
from lab.engine.usererror import UserError


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest text, two blanks apart."""
    table = [headers, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(headers))]
    for row in table:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def print_json(document: Any, *, indent: int = 2) -> None:
    """A JSON document."""
    json.dump(document, sys.stdout, indent=indent, ensure_ascii=False)
    print()


def write_result(name: str, text: str) -> None:
    """Write a file that nobody else may read, in a folder that is there."""
    path = Path(name)
    if not path.absolute().parent.is_dir():
        raise UserError(f"could not write {path}: there is no folder {path.parent}")
    write_bytes(path, text.encode())
