"""What kind of terminal there is, and asking the person in front of it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from lab.engine.usererror import ExitCode, UserError

_TRUE = frozenset({"1", "true", "yes"})


def truthy(name: str) -> bool:
    """Whether an environment variable is set to a yes."""
    return os.environ.get(name, "").strip().lower() in _TRUE


def interactive(arguments: argparse.Namespace) -> bool:
    """Whether somebody can be asked."""
    if arguments.non_interactive or truthy("PULUMI_NON_INTERACTIVE"):
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


def agreed(arguments: argparse.Namespace) -> bool:
    """Whether the question is answered already: by ``--yes`` or by the environment."""
    return bool(arguments.yes) or truthy("PULUMI_SKIP_CONFIRMATIONS")


def coloured(arguments: argparse.Namespace) -> bool:
    """Whether to write colours to stdout."""
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
