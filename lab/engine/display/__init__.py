"""What a run looks like: a tree, lines, differences, or JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from lab.engine.display.base import ANNOUNCEMENT, Display, Options
from lab.engine.display.masking import Masker


def choose(
    arguments: argparse.Namespace,
    *,
    operation: str,
    stack: str,
    project: str,
    preview: bool,
    config: Mapping[str, str],
    secrets: Sequence[str],
    announce: bool,
) -> Display:
    """The display that the flags and the terminal ask for."""
    from lab.engine.cli.terminal import coloured, interactive

    options = Options(
        operation=operation,
        stack=stack,
        project=project,
        preview=preview,
        config=config,
        mask=Masker(secrets),
        colour=coloured(arguments),
        show_same=arguments.show_sames,
        show_replacement_steps=arguments.show_replacement_steps,
        show_secrets=getattr(arguments, "show_secrets", False),
        suppress_outputs=arguments.suppress_outputs,
    )
    if announce:
        print(ANNOUNCEMENT, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    if arguments.json:
        from lab.engine.display.digest import Digest
        from lab.engine.display.eventlines import EventLines

        return Digest(options) if preview else EventLines(options)
    if arguments.diff:
        from lab.engine.display.difference import Differences

        return Differences(options)
    live = interactive(arguments) and not arguments.suppress_progress
    if live:
        from lab.engine.display.tree import Tree

        return Tree(options)
    from lab.engine.display.lines import Lines

    return Lines(options)
