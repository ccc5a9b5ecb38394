"""Tables and JSON on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any


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
