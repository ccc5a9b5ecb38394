"""`stack tag …`: names and values that hang on a stack."""

from __future__ import annotations

import argparse
import re

from lab.engine.cli.parser import Parser, nested_stack_flag
from lab.engine.cli.tables import print_json, print_table
from lab.engine.cli.workspace import Workspace
from lab.engine.usererror import ExitCode, UserError

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,40}")
_LONGEST = 256


def add_actions(tag: Parser, shared: Parser) -> None:
    """Register the actions below `stack tag`."""
    tag.help_alone()
    below = tag.add_subparsers(dest="tag", metavar="ACTION", parser_class=Parser)
    for name, run, arguments in (
        ("ls", _list, ()),
        ("get", _get, ("name",)),
        ("set", _set, ("name", "value")),
        ("rm", _remove, ("name",)),
    ):
        parser = below.add_parser(name, parents=[shared], allow_abbrev=False)
        nested_stack_flag(parser)
        for argument in arguments:
            parser.add_argument(argument, metavar=argument.upper())
        if name == "ls":
            parser.add_argument("--json", "-j", action="store_true")
        parser.set_defaults(run=run)


def _list(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    tags = workspace.backend.tags(workspace.stack)
    if arguments.json:
        print_json(dict(sorted(tags.items())))
    else:
        print_table(("NAME", "VALUE"), sorted(tags.items()))
    return 0


def _get(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    tags = workspace.backend.tags(workspace.stack)
    if arguments.name not in tags:
        raise UserError(f"stack tag '{arguments.name}' not found for stack '{workspace.stack}'")
    print(tags[arguments.name])
    return 0


def _set(arguments: argparse.Namespace) -> int:
    if not _NAME.fullmatch(arguments.name):
        raise UserError(
            f"stack tag name {arguments.name!r} is not valid: letters, digits, '-', '_', '.' and"
            " ':' are allowed, 40 at most",
            ExitCode.CONFIGURATION,
        )
    if len(arguments.value) > _LONGEST:
        raise UserError(
            f"stack tag value is too long: {len(arguments.value)} characters, {_LONGEST} at most",
            ExitCode.CONFIGURATION,
        )
    workspace = Workspace(arguments)
    tags = workspace.backend.tags(workspace.stack)
    workspace.backend.set_tags(workspace.stack, {**tags, arguments.name: arguments.value})
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    tags = workspace.backend.tags(workspace.stack)
    tags.pop(arguments.name, None)
    workspace.backend.set_tags(workspace.stack, tags)
    return 0
