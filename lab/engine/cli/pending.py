"""Creates that were cut off: did they make something? Only somebody who looks can tell."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from lab.engine.cli.terminal import choose, interactive
from lab.engine.pending import CREATING, Answers
from lab.engine.state import Snapshot
from lab.engine.usererror import ExitCode, UserError

_CLEAR = "clear (the CREATE failed; remove the pending CREATE)"
_SKIP = "skip (do nothing)"
_IMPORT = "import (the CREATE succeeded; provide a resource ID and complete the CREATE operation)"


def answers(arguments: argparse.Namespace, load: Callable[[], Snapshot]) -> Answers:
    """What the flags of `refresh` say, and what the person at the terminal says of the rest.

    Raises:
        UserError: a flag speaks of what is no pending create, or flags contradict each other.
    """
    if arguments.verb != "refresh":
        return Answers()
    if arguments.skip_pending_creates and arguments.clear_pending_creates:
        raise UserError(
            "cannot set both --skip-pending-creates and --clear-pending-creates",
            ExitCode.CONFIGURATION,
        )
    pending = load().pending_operations
    waiting = [operation.resource.urn for operation in pending if operation.type == CREATING]
    made = _pairs(arguments.import_pending_creates, waiting)
    left = [urn for urn in waiting if urn not in made]
    failed: set[str] = set()
    if arguments.clear_pending_creates:
        failed.update(left)
    elif left and not arguments.skip_pending_creates and interactive(arguments):
        for urn in left:
            _ask(urn, made, failed)
    return Answers(made, frozenset(failed))


def _pairs(texts: list[str], waiting: Iterable[str]) -> dict[str, str]:
    if len(texts) % 2:
        raise UserError(
            "--import-pending-creates: each URN must be followed by an ID, each with the flag before"
            " it: found an odd number of entries",
            ExitCode.CONFIGURATION,
        )
    made = dict(zip(texts[::2], texts[1::2], strict=True))
    known = set(waiting)
    for urn in made:
        if urn not in known:
            there = ", ".join(sorted(known)) or "there are none"
            raise UserError(
                f'--import-pending-creates: "{urn}" is no pending create ({there})',
                ExitCode.CONFIGURATION,
            )
    return made


def _ask(urn: str, made: dict[str, str], failed: set[str]) -> None:
    while True:
        choice = choose(f"Options for pending CREATE of {urn}", (_CLEAR, _SKIP, _IMPORT))
        if choice == _CLEAR:
            failed.add(urn)
        elif choice == _IMPORT:
            id_ = input("ID: ").strip()
            if not id_:
                continue
            made[urn] = id_
        return
