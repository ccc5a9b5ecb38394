"""The terminal: of what kind it is, asking the person there, tables and JSON."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine.atomicfile import write_bytes
from engine.usererror import ExitCode, UserError

_TRUE = frozenset({"1", "true", "yes"})


def truthy(name: str) -> bool:
    """Whether an environment variable is set to a yes."""
    return os.environ.get(name, "").strip().lower() in _TRUE


def interactive(arguments: argparse.Namespace) -> bool:
    if arguments.non_interactive or truthy("PULUMI_NON_INTERACTIVE"):
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


def agreed(arguments: argparse.Namespace) -> bool:
    """Whether the question is answered already: by ``--yes`` or by the environment."""
    return bool(arguments.yes) or truthy("PULUMI_SKIP_CONFIRMATIONS")


def coloured(arguments: argparse.Namespace) -> bool:
    choice = arguments.color or "auto"
    if choice == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return bool(choice == "always")


def confirm(
    question: str, *, ask: bool, refusal: str, details: Callable[[], None] | None = None
) -> None:
    """Ask for the word yes; with `details` there is a third answer, which shows them."""
    if not ask:
        raise UserError(refusal, ExitCode.CONFIGURATION)
    choices = "yes/no/details" if details else "yes/no"
    while True:
        try:
            answer = input(f"{question} ({choices}): ").strip().lower()
        except EOFError:
            answer = ""
        if answer in ("yes", "y"):
            return
        if details is None or answer not in ("details", "d"):
            raise UserError("confirmation declined, nothing was done")
        details()


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest text, two blanks apart."""
    table = [headers, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(headers))]
    for row in table:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def print_json(document: Any, *, indent: int = 2) -> None:
    json.dump(document, sys.stdout, indent=indent, ensure_ascii=False)
    print()


def write_result(name: str, text: str) -> None:
    """Write a file that nobody else may read, in a folder that is there."""
    path = Path(name)
    if not path.absolute().parent.is_dir():
        raise UserError(f"could not write {path}: there is no folder {path.parent}")
    write_bytes(path, text.encode())
